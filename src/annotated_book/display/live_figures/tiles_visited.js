// Tiles are visited: a few queries and keys at a time, with the running numbers of the tile's queries.
//
// words: of queries and keys; scores: (n, n); values: one feature of each value
// tile: the side of a tile; step: how many tiles are visited at first
//
// A test compares the tiles and the running numbers with Python's.
import { element, readout, slider, svg } from "./host/figure.js";
import { label } from "./host/panel.js";

const range = (start, stop) => Array.from({ length: stop - start }, (_, i) => start + i);

/** Visit all tiles: of each the queries, the keys, and what each query has after it: correction, largest score, total, mix. */
export function visits(scores, values, causal, tile) {
  const n = scores.length;
  const made = [];
  for (let start = 0; start < n; start += tile) {
    const rows = range(start, Math.min(start + tile, n));
    const last = causal ? rows.at(-1) + 1 : n;
    let running = rows.map(() => [0, -Infinity, 0, 0]);
    for (let from = 0; from < last; from += tile) {
      const columns = range(from, Math.min(from + tile, last));
      running = running.map(([, largest, total, mix], line) => {
        const seen = columns.filter((j) => !causal || j <= rows[line]);
        const larger = Math.max(largest, ...seen.map((j) => scores[rows[line]][j]));
        const correction = Math.exp(largest - larger);
        const powers = seen.map((j) => Math.exp(scores[rows[line]][j] - larger));
        const sum = (numbers) => numbers.reduce((all, x) => all + x, 0);
        return [
          correction,
          larger,
          correction * total + sum(powers),
          correction * mix + sum(powers.map((x, k) => x * values[seen[k]])),
        ];
      });
      made.push({ rows, columns, running });
    }
  }
  return made;
}

/** Write a query's correction, largest score, total, mix and output. */
export const written = ([correction, largest, total, mix]) =>
  [correction, largest, total, mix, mix / total].map((x) => x.toFixed(2));

const [LEFT, WIDE, HIGH, TOP] = [68, 41, 26, 26];
const TITLES = ["query", "correction", "largest", "total", "mix", "mix / total"];

export default {
  render({ model, el }) {
    const { words, scores, values, tile, step } = model.get("data");
    const all = [false, true].map((causal) => visits(scores, values, causal, tile));
    const now = { step, causal: false };
    const said = readout();
    const { root, show: draw } = drawing(words, scores, tile);
    const show = () => {
      const made = all[Number(now.causal)];
      const { rows, columns, running } = made[now.step - 1];
      draw(made, now.step, now.causal);
      for (const [causal, mark] of marks) mark.setAttribute("aria-pressed", causal === now.causal);
      const names = (places) => places.map((i) => words[i]).join(", ");
      const skipped = all[0].length - made.length;
      const output = rows
        .map((i, line) => `${words[i]} ${written(running[line]).at(-1)}`)
        .join(", ");
      const end =
        columns.at(-1) === (now.causal ? rows : range(0, words.length)).at(-1)
          ? " These are final."
          : "";
      said.textContent = `Tile ${now.step} of ${made.length}${skipped ? `, ${skipped} skipped` : ""}: queries ${names(rows)}; keys ${names(columns)}. Mix / total: ${output}.${end}`;
    };
    const count = slider({
      label: "tile",
      min: 1,
      max: all[0].length,
      value: step,
      move: (value) => ((now.step = value), show()),
    });
    const marks = [false, true].map((causal) => {
      const mark = element(
        "button",
        { type: "button", class: "aa-mark" },
        causal ? "causal mask" : "no mask",
      );
      mark.addEventListener("click", () => {
        now.causal = causal;
        count.input.max = all[Number(causal)].length;
        now.step = Math.min(now.step, all[Number(causal)].length);
        count.show(now.step);
        show();
      });
      return [causal, mark];
    });
    const buttons = element(
      "div",
      { class: "aa-marks", role: "group", "aria-label": "mask" },
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

function drawing(words, scores, tile) {
  const n = words.length;
  const [width, low] = [LEFT + n * WIDE + 2, TOP + n * HIGH + 24];
  const root = svg("svg", {
    viewBox: `0 0 ${width} ${low + tile * 22 + 6}`,
    role: "img",
    fill: "currentColor",
  });
  const starts = range(0, Math.ceil(n / tile)).map((i) => i * tile);
  const boxes = starts.flatMap((i) =>
    starts.map((j) => {
      const [high, wide] = [i, j].map((start) => Math.min(tile, n - start));
      const box = svg("rect", {
        x: LEFT + j * WIDE + 1.5,
        y: TOP + i * HIGH + 1.5,
        width: wide * WIDE - 3,
        height: high * HIGH - 3,
        rx: 3,
        fill: "var(--aa-n)",
        stroke: "var(--aa-n)",
      });
      root.append(box);
      return { i, j, box };
    }),
  );
  const grid = scores.map((row, i) =>
    row.map((score, j) => label("", LEFT + (j + 0.5) * WIDE, TOP + (i + 0.5) * HIGH + 4.5)),
  );
  const titles = words.map((word, j) =>
    label(word, LEFT + (j + 0.5) * WIDE, 17, {
      fill: "var(--aa-m)",
      "font-size": word.length > 6 ? 11 : 12,
    }),
  );
  const sides = words.map((word, i) =>
    label(word, LEFT - 6, TOP + (i + 0.5) * HIGH + 4.5, {
      "text-anchor": "end",
      fill: "var(--aa-n)",
    }),
  );
  const places = [LEFT - 6, ...range(0, 5).map((k) => LEFT + ((k + 0.9) * n * WIDE) / 5)];
  const line = (y, more) => places.map((x) => label("", x, y, { "text-anchor": "end", ...more }));
  const heads = places.map((x, k) =>
    label(TITLES[k], x, low, { "text-anchor": "end", "font-size": 11 }),
  );
  const lines = range(0, tile).map((k) => line(low + (k + 1) * 22, { class: "aa-running" }));
  root.append(...grid.flat(), ...titles, ...sides, ...heads, ...lines.flat());
  return {
    root,
    show(made, step, causal) {
      const state = (i, j) => {
        const at = made.findIndex(({ rows, columns }) => rows.includes(i) && columns[0] === j);
        return at < 0 ? "skipped" : at === step - 1 ? "now" : at < step ? "done" : "waiting";
      };
      for (const { i, j, box } of boxes) {
        const now = state(i, j);
        box.setAttribute("fill-opacity", { now: 0.4, done: 0.1 }[now] ?? 0);
        box.setAttribute("stroke-width", { now: 2.5, skipped: 0 }[now] ?? 0.7);
        box.setAttribute("stroke-dasharray", now === "waiting" ? "2 3" : "none");
      }
      grid.forEach((row, i) =>
        row.forEach((text, j) => {
          const now = state(i, j - (j % tile));
          const seen = now === "now" || now === "done";
          text.textContent =
            now === "skipped" ? "·" : !seen ? "" : causal && j > i ? "−∞" : String(scores[i][j]);
          text.setAttribute("font-weight", now === "now" ? 700 : 400);
        }),
      );
      const { rows, columns, running } = made[step - 1];
      lines.forEach((texts, k) => {
        const shown = k < rows.length ? [words[rows[k]], ...written(running[k])] : [];
        texts.forEach((text, c) => (text.textContent = shown[c] ?? ""));
      });
      const each = rows.map(
        (i, k) =>
          `${words[i]}: ${written(running[k])
            .map((x, c) => `${TITLES[c + 1]} ${x}`)
            .join(", ")}`,
      );
      root.setAttribute(
        "aria-label",
        `Tile ${step} of ${made.length}, ${causal ? "causal" : "without a mask"}. Keys: ${columns.map((j) => words[j]).join(", ")}. ${each.join("; ")}.`,
      );
    },
  };
}
