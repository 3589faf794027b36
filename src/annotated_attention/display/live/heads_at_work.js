// Heads at work: choose a layer, a head and a token, and see what the token looks at.
//
// maps: for each layer, for each head, rows of weights in hundredths, a row per query
// queries, keys: the words
// start: [layer, head, query] to begin with, counted from 0
import { element, readout, slider, svg } from "./host/figure.js";

const STEP = 62; // between two words of the lines
const HIGH = 150; // from the queries up to the keys
const CELL = 26;
const LEFT = 76;
const TOP = 64;
const RIGHT = 36; // where the last word ends

export default {
  render({ model, el }) {
    const { maps, queries, keys, start } = model.get("data");
    const at = [...start];
    const lines = drawLines(queries, keys);
    const map = drawMap(queries, keys, (query) => choose(2, query));
    const said = readout();

    const show = () => {
      const [layer, head, query] = at;
      const rows = maps[layer][head];
      const where = maps.length > 1 ? `layer ${layer + 1}, head ${head + 1}` : `head ${head + 1}`;
      const looks = strongest(rows[query], keys);
      lines.show(rows, query, `${where}: ${queries[query]} looks at ${looks}.`);
      map.show(rows, query, `The weights of ${where}, a row per query.`);
      said.textContent = `${where}: “${queries[query]}” looks at ${looks}`;
    };
    const numbered = (label, place, count) =>
      slider({
        label,
        max: count - 1,
        value: at[place],
        say: (index) => String(index + 1),
        move: (index) => choose(place, index),
      });
    const sliders = [
      numbered("layer", 0, maps.length),
      numbered("head", 1, maps[0].length),
      slider({
        label: "token",
        max: queries.length - 1,
        value: at[2],
        say: (index) => queries[index],
        move: (index) => choose(2, index),
      }),
    ];
    const choose = (place, index) => {
      at[place] = index;
      sliders[place].show(index);
      show();
    };

    const wanted = sliders.filter((_, place) => place !== 0 || maps.length > 1);
    const controls = element("div", { class: "aa-controls" }, ...wanted.map(({ label }) => label));
    el.append(lines.root, controls, said, map.root);
    show();
  },
};

// The words that a row weighs most, down to a tenth, or the first of them.
function strongest(row, keys) {
  const order = row.map((weight, j) => [weight, j]).sort((a, b) => b[0] - a[0] || a[1] - b[1]);
  const said = order.filter(([weight], place) => place === 0 || weight >= 10).slice(0, 3);
  return said.map(([weight, j]) => `${keys[j]} (${(weight / 100).toFixed(2)})`).join(", ");
}

function frame(width, height) {
  const root = svg("svg", { viewBox: `0 0 ${width} ${height}`, width, role: "img", fill: "currentColor" });
  root.style.minWidth = `${0.72 * width}px`;
  return root;
}

function word(text, x, y, letter, more = {}) {
  const made = { x, y, "text-anchor": "middle", "font-size": 12, fill: `var(--aa-${letter})`, ...more };
  return svg("text", made, text);
}

// Queries below, keys above, a curve per pair; those of the chosen query stand out.
function drawLines(queries, keys) {
  const width = STEP * Math.max(queries.length, keys.length);
  const x = (words, i) => (width * (i + 0.5)) / words.length;
  const root = frame(width, HIGH + 70);
  const [low, high] = [HIGH + 44, 40];
  const middle = (low + high) / 2;
  const curves = queries.map((_, i) =>
    keys.map((_, j) => {
      const [from, to] = [x(queries, i), x(keys, j)];
      return svg("path", {
        d: `M${from} ${low}C${from} ${middle} ${to} ${middle} ${to} ${high}`,
        fill: "none",
        "stroke-linecap": "round",
      });
    }),
  );
  const numbers = keys.map((_, j) => word("", x(keys, j), 14, "h", { "font-size": 11 }));
  const asking = queries.map((text, i) => word(text, x(queries, i), low + 18, "n"));
  root.append(...curves.flat(), ...keys.map((text, j) => word(text, x(keys, j), 30, "m")), ...numbers, ...asking);
  const show = (rows, query, label) => {
    root.setAttribute("aria-label", label);
    curves.forEach((row, i) =>
      row.forEach((curve, j) => {
        const [weight, lit] = [rows[i][j] / 100, i === query];
        curve.setAttribute("stroke", `var(--aa-${lit ? "h" : "b"})`);
        curve.setAttribute("stroke-width", lit ? 0.4 + 12 * weight : 4 * weight);
        curve.setAttribute("stroke-opacity", weight < 0.02 ? 0 : lit ? 0.85 : 0.22);
      }),
    );
    root.querySelector("text").before(...curves[query]); // above the others
    numbers.forEach((number, j) => (number.textContent = (rows[query][j] / 100).toFixed(2)));
    asking.forEach((text, i) => {
      text.setAttribute("font-weight", i === query ? "bold" : "normal");
      text.setAttribute("fill", `var(--aa-${i === query ? "h" : "n"})`);
    });
  };
  return { root, show };
}

// The whole map; a click on a row chooses its query, as the slider does.
function drawMap(queries, keys, choose) {
  const [width, height] = [LEFT + CELL * keys.length + RIGHT, TOP + CELL * queries.length + 2];
  const root = frame(width, height);
  const cells = queries.map((_, i) =>
    keys.map((_, j) => {
      const box = { x: LEFT + CELL * j, y: TOP + CELL * i, width: CELL, height: CELL };
      return svg("rect", { ...box, class: "aa-weight" });
    }),
  );
  const chosen = svg("rect", {
    x: LEFT, width: CELL * keys.length, height: CELL,
    fill: "none", stroke: "var(--aa-h)", "stroke-width": 2,
  });
  const asking = queries.map((text, i) =>
    word(text, LEFT - 6, TOP + CELL * (i + 0.65), "n", { "text-anchor": "end" }),
  );
  const asked = keys.map((text, j) => {
    const [x, y] = [LEFT + CELL * (j + 0.6), TOP - 6];
    return word(text, x, y, "m", { "text-anchor": "start", transform: `rotate(-50 ${x} ${y})` });
  });
  const rows = queries.map((_, i) => {
    const row = svg("g", { style: "cursor: pointer" }, ...cells[i], asking[i]);
    row.addEventListener("click", () => choose(i));
    return row;
  });
  root.append(...asked, ...rows, chosen);
  const show = (weights, query, label) => {
    root.setAttribute("aria-label", label);
    cells.forEach((row, i) => row.forEach((cell, j) => (cell.style.fillOpacity = 0.85 * (weights[i][j] / 100))));
    chosen.setAttribute("y", TOP + CELL * query);
  };
  return { root, show };
}
