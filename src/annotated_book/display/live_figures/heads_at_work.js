// Heads at work: choose a layer, a head and a word, and see what the word looks at.
//
// maps: for each layer, for each head, rows of weights in hundredths, a row per query
// heads: their names
// queries, keys: the words
// start: [layer, head, query] to begin with, counted from 0
// A link to a head, anywhere on the page, shows it here: #head-3-10 is layer 3, head 10.
import { element, readout, slider, svg } from "./host/figure.js";

const CELL = 26;
const BETWEEN = 130; // from the queries to the keys
const NUMBER = 34; // room for a weight

export default {
  render({ model, el }) {
    const { maps, heads, queries, keys, start } = model.get("data");
    const at = [...start];
    const ask = (query) => choose(2, query);
    const lines = drawLines(queries, keys, ask);
    const map = drawMap(queries, keys, ask);
    const said = readout();

    const show = () => {
      const [layer, head, query] = at;
      const rows = maps[layer][head];
      const where = maps.length > 1 ? `layer ${layer + 1}, ${heads[head]}` : heads[head];
      const looks = strongest(rows[query], keys);
      lines.show(rows, query, `${where}: ${queries[query]} looks at ${looks}.`);
      map.show(rows, query, `The weights of ${where}, a row per query.`);
      said.textContent = `${where}: “${queries[query]}” looks at ${looks}`;
      for (const link of document.querySelectorAll(".aa-heads a"))
        link.setAttribute("aria-current", link.hash === `#head-${layer + 1}-${head + 1}`);
    };
    const choices = [
      { label: "layer", count: maps.length, say: (index) => String(index + 1) },
      { label: "head", count: heads.length, say: (index) => heads[index].replace(/^head /, "") },
      { label: "query", count: queries.length, say: (index) => queries[index] },
    ];
    const sliders = choices.map(({ label, count, say }, place) =>
      slider({
        label,
        max: count - 1,
        value: at[place],
        say,
        move: (index) => choose(place, index),
      }),
    );
    const choose = (place, index) => {
      at[place] = index;
      sliders[place].show(index);
      show();
    };

    // The longest word keeps its room, so that nothing moves when another is chosen.
    const longest = Math.max(...queries.map((text) => text.length));
    sliders[2].label.lastChild.style.minWidth = `${longest + 1}ch`;
    const wanted = sliders.filter((_, place) => choices[place].count > 1);
    el.append(
      element("div", { class: "aa-controls" }, ...wanted.map(({ label }) => label)),
      element("div", { class: "aa-pictures" }, lines.root, map.root),
      said,
    );
    show();

    const follow = (event) => {
      const { hash } = event.target.closest("a") ?? {};
      const [, layer, head] = String(hash).match(/^#head-(\d+)-(\d+)$/) ?? [];
      if (!maps[layer - 1]?.[head - 1]) return;
      event.preventDefault();
      history.pushState(null, "", hash);
      choose(0, layer - 1);
      choose(1, head - 1);
      el.scrollIntoView({ block: "nearest" });
    };
    document.addEventListener("click", follow);
    return () => document.removeEventListener("click", follow);
  },
};

// The words that a row weighs most, down to a tenth, or the first of them.
function strongest(row, keys) {
  const order = row.map((weight, j) => [weight, j]).sort((a, b) => b[0] - a[0] || a[1] - b[1]);
  const said = order.filter(([weight], place) => place === 0 || weight >= 10).slice(0, 3);
  return said.map(([weight, j]) => `${keys[j]} (${(weight / 100).toFixed(2)})`).join(", ");
}

// The width that the longest of some words takes.
const widest = (words) => 14 + 7.2 * Math.max(3, ...words.map((word) => word.length));

// The keys' words stand slanted over the map, where they are wider than its columns.
const slant = (keys) => Math.max(...keys.map((text) => text.length)) > 2;
const above = (keys) => 16 + Math.ceil(5.1 * Math.max(...keys.map((text) => text.length)));

const height = (queries, keys) => above(keys) + CELL * Math.max(queries.length, keys.length) + 2;

function frame(width, height, children) {
  const look = { viewBox: `0 0 ${width} ${height}`, role: "img", fill: "currentColor" };
  const root = svg("svg", look, ...children);
  root.style.cssText = `flex: ${width} 1 ${0.72 * width}px; max-width: ${width}px`;
  return root;
}

function word(text, x, y, letter, more = {}) {
  return svg("text", { x, y, "font-size": 12, fill: `var(--aa-${letter})`, ...more }, text);
}

// The queries' words, a row each; a click anywhere in a row asks for its query.
function askers(queries, top, right, width, ask, inside = () => []) {
  const words = queries.map((text, i) =>
    word(text, right, top + CELL * (i + 0.65), "n", { "text-anchor": "end" }),
  );
  const rows = queries.map((_, i) => {
    const ground = svg("rect", { y: top + CELL * i, width, height: CELL, fill: "transparent" });
    const row = svg("g", { class: "aa-ask" }, ground, words[i], ...inside(i));
    row.addEventListener("click", () => ask(i));
    return row;
  });
  const light = (query) =>
    words.forEach((text, i) => {
      text.setAttribute("font-weight", i === query ? "bold" : "normal");
      text.setAttribute("fill", `var(--aa-${i === query ? "h" : "n"})`);
    });
  return { rows, light };
}

// Queries at the left, keys at the right, a curve per pair; those of the chosen query stand out.
function drawLines(queries, keys, ask) {
  const [left, last, top] = [widest(queries), widest(keys), above(keys)];
  const [right, middle] = [left + BETWEEN, left + BETWEEN / 2];
  const y = (i) => top + CELL * (i + 0.5);
  const curves = queries.map((_, i) =>
    keys.map((_, j) => {
      const d = `M${left} ${y(i)}C${middle} ${y(i)} ${middle} ${y(j)} ${right} ${y(j)}`;
      return svg("path", { d, fill: "none", "stroke-linecap": "round" });
    }),
  );
  const asking = askers(queries, top, left - 8, left, ask);
  const asked = keys.map((text, j) => word(text, right + 8, y(j) + 4, "m"));
  const numbers = keys.map((_, j) => word("", right + last, y(j) + 4, "h"));
  const lines = svg("g", {}, ...curves.flat());
  const parts = [lines, ...asking.rows, ...asked, ...numbers];
  const root = frame(right + last + NUMBER, height(queries, keys), parts);
  root.style.setProperty("--aa-above", `${8 - top}px`);
  const show = (rows, query, label) => {
    root.setAttribute("aria-label", label);
    asking.light(query);
    curves.forEach((row, i) =>
      row.forEach((curve, j) => {
        const [weight, lit] = [rows[i][j] / 100, i === query];
        curve.setAttribute("stroke", `var(--aa-${lit ? "h" : "b"})`);
        curve.setAttribute("stroke-width", lit ? 0.4 + 12 * weight : 4 * weight);
        curve.setAttribute("stroke-opacity", weight < 0.02 ? 0 : lit ? 0.85 : 0.22);
      }),
    );
    lines.append(...curves[query]); // above the others
    numbers.forEach((number, j) => (number.textContent = (rows[query][j] / 100).toFixed(2)));
  };
  return { root, show };
}

// The whole map.
function drawMap(queries, keys, ask) {
  const [left, top] = [widest(queries), above(keys)];
  const wide = CELL * keys.length;
  const cells = queries.map((_, i) =>
    keys.map((_, j) => {
      const box = { x: left + CELL * j, y: top + CELL * i, width: CELL, height: CELL };
      return svg("rect", { ...box, class: "aa-weight" });
    }),
  );
  const asking = askers(queries, top, left - 6, left, ask, (i) => cells[i]);
  const asked = keys.map((text, j) => {
    const [x, y] = [left + CELL * (j + (slant(keys) ? 0.6 : 0.5)), top - 6];
    const how = slant(keys) ? { transform: `rotate(-50 ${x} ${y})` } : { "text-anchor": "middle" };
    return word(text, x, y, "m", how);
  });
  const chosen = svg("rect", {
    x: left,
    width: wide,
    height: CELL,
    fill: "none",
    stroke: "var(--aa-h)",
    "stroke-width": 2,
  });
  const root = frame(left + wide + 36, height(queries, keys), [...asked, ...asking.rows, chosen]);
  const show = (weights, query, label) => {
    root.setAttribute("aria-label", label);
    asking.light(query);
    cells.forEach((row, i) =>
      row.forEach((cell, j) => (cell.style.fillOpacity = 0.85 * (weights[i][j] / 100))),
    );
    chosen.setAttribute("y", top + CELL * query);
  };
  return { root, show };
}
