// The cache fills: a sentence is written word by word, with and without keys and values that are kept.
//
// words: as they are written; weights: for each word the weights of its query, on itself and those before it
// step: how many words are there at first; cached: whether keys and values are kept at first
//
// A test compares what is new, what is kept and what is counted with Python's.
import { element, readout, slider, svg } from "./host/figure.js";
import { label } from "./host/panel.js";

const range = (count) => Array.from({ length: count }, (_, i) => i);

/** Say of each word's query, key and value whether this step makes it ("new"), has kept it or does without ("none"). */
export const states = (step, cached) => ({
  query: range(step).map((j) => (!cached || j === step - 1 ? "new" : "none")),
  key: range(step).map((j) => (!cached || j === step - 1 ? "new" : "kept")),
  value: range(step).map((j) => (!cached || j === step - 1 ? "new" : "kept")),
});

/** Say which rows of weights a step computes. */
export const rows = (step, cached) => (cached ? [step - 1] : range(step));

/** Count the vectors and the weights that one step computes; a row has a weight for each word, masked or not. */
export const work = (step, cached) => ({
  vectors: 3 * (cached ? 1 : step),
  weights: step * rows(step, cached).length,
});

/** Count those of all steps so far. */
export function total(step, cached) {
  const all = range(step).map((i) => work(i + 1, cached));
  const sum = (name) => all.reduce((amount, each) => amount + each[name], 0);
  return { vectors: sum("vectors"), weights: sum("weights") };
}

const [LEFT, WIDE, HIGH] = [68, 41, 26];
const TOP = { query: 26, key: 52, value: 78, weights: 134 };
const INKS = { query: "n", key: "m", value: "m" };

export default {
  render({ model, el }) {
    const { words, weights, step, cached } = model.get("data");
    const now = { step, cached };
    const said = readout();
    const lines = range(2).map(() => element("span", { style: "display: block" }));
    said.append(...lines);
    const { root, show: draw } = drawing(words, weights);
    const show = () => {
      draw(now.step, now.cached);
      for (const [kept, mark] of marks) mark.setAttribute("aria-pressed", kept === now.cached);
      const [one, all] = [work, total].map((count) => count(now.step, now.cached));
      const word = `“${words[now.step - 1]}”`;
      lines[0].textContent = `For ${word}: ${one.vectors} vectors and ${one.weights} weights computed, ${now.cached ? 2 * (now.step - 1) : 0} vectors kept. `;
      const without = total(now.step, false);
      const instead = now.cached ? ` instead of ${without.vectors} and ${without.weights}` : "";
      lines[1].textContent = `Since the first word: ${all.vectors} vectors and ${all.weights} weights${instead}.`;
    };
    const marks = [false, true].map((kept) => {
      const mark = element(
        "button",
        { type: "button", class: "aa-mark" },
        kept ? "with a cache" : "without",
      );
      mark.addEventListener("click", () => ((now.cached = kept), show()));
      return [kept, mark];
    });
    const count = slider({
      label: "words",
      min: 1,
      max: words.length,
      value: step,
      move: (value) => ((now.step = value), show()),
    });
    const buttons = element(
      "div",
      { class: "aa-marks", role: "group", "aria-label": "keys and values" },
      ...marks.map(([, mark]) => mark),
    );
    el.append(
      element("div", { class: "aa-cache" }, root),
      element("div", { class: "aa-controls" }, buttons, count.label),
      said,
    );
    show();
  },
};

function drawing(words, weights) {
  const n = words.length;
  const [width, height] = [LEFT + n * WIDE + 2, TOP.weights + n * HIGH + 4];
  const root = svg("svg", { viewBox: `0 0 ${width} ${height}`, role: "img", fill: "currentColor" });
  const cell = (row, j, ink) => {
    const frame = {
      x: LEFT + j * WIDE + 1.5,
      y: row + 1.5,
      width: WIDE - 3,
      height: HIGH - 3,
      rx: 3,
      fill: `var(--aa-${ink})`,
      stroke: `var(--aa-${ink})`,
    };
    const box = svg("rect", frame);
    const text = label("", LEFT + (j + 0.5) * WIDE, row + HIGH / 2 + 4.5);
    root.append(box, text);
    // Shade the box, write into it, and draw its edge: thick, thin or dotted.
    return (shade, written, edge) => {
      box.setAttribute("fill-opacity", shade);
      box.setAttribute("stroke-width", { new: 2, kept: 0.7, none: 0.7 }[edge] ?? 0);
      box.setAttribute("stroke-dasharray", edge === "none" ? "2 3" : "none");
      text.textContent = written;
      text.setAttribute("font-weight", edge === "new" ? 700 : 400);
    };
  };
  const titles = range(n).map((j) =>
    label(words[j], LEFT + (j + 0.5) * WIDE, 17, {
      fill: "var(--aa-m)",
      "font-size": words[j].length > 6 ? 11 : 12,
    }),
  );
  const names = [
    ...Object.keys(INKS).map((name) => [name, TOP[name], INKS[name]]),
    ...words.map((word, i) => [word, TOP.weights + i * HIGH, "n"]),
  ];
  const sides = names.map(([name, y, ink]) =>
    label(name, LEFT - 6, y + HIGH / 2 + 4.5, { "text-anchor": "end", fill: `var(--aa-${ink})` }),
  );
  root.append(
    ...titles,
    ...sides,
    label("weights of each query", LEFT, TOP.weights - 8, { "text-anchor": "start" }),
  );
  const vectors = Object.entries(INKS).map(([name, ink]) => [
    name,
    range(n).map((j) => cell(TOP[name], j, ink)),
  ]);
  const grid = weights.map((row, i) => row.map((_, j) => cell(TOP.weights + i * HIGH, j, "n")));
  return {
    root,
    show(step, cached) {
      const [all, lit] = [states(step, cached), rows(step, cached)];
      titles.forEach((title, j) => title.setAttribute("fill", `var(--aa-${j < step ? "m" : "b"})`));
      for (const [name, boxes] of vectors)
        boxes.forEach((set, j) => {
          const state = all[name][j];
          set({ new: 0.45, kept: 0.1 }[state] ?? 0, state && state !== "none" ? state : "", state);
        });
      grid.forEach((row, i) =>
        row.forEach((set, j) => {
          if (lit.includes(i))
            set(0.6 * weights[i][j], weights[i][j].toFixed(2).replace("0.", "."), "new");
          else set(0, "", i < step ? "none" : "");
        }),
      );
      const made = Object.entries(all).map(
        ([name, each]) =>
          `${name}: ${each.filter((x) => x === "new").length} new, ${each.filter((x) => x === "kept").length} kept`,
      );
      root.setAttribute(
        "aria-label",
        `${words.slice(0, step).join(" ")}, ${cached ? "with" : "without"} a cache. ${made.join("; ")}. Rows of weights: ${lit.length}.`,
      );
    },
  };
}
