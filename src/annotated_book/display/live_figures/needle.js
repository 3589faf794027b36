// The needle: a query as an arrow among keys. A score is how far along it a key stands, times its length.
// keys: of each its name, its place [x, y], and how many words have it; who: the word that asks
// axes: what x and y count; query: where the arrow begins; reach: the least and the greatest number on either axis
//
// A test compares scores and weights with Python's.
import { element, readout, slider, svg } from "./host/figure.js";
import { drag } from "./host/drag.js";
import { HALO, label } from "./host/panel.js";

/** Multiply the query with each key. */
export const score = (query, keys) => keys.map(([, [x, y]]) => query[0] * x + query[1] * y);

/** Turn scores into the share of a word with each key: divided by √2. */
export function weigh(query, keys) {
  const powers = score(query, keys).map((s) => Math.exp(s / Math.SQRT2));
  const whole = powers.reduce((sum, power, i) => sum + power * keys[i][2], 0);
  return powers.map((power) => power / whole);
}

const [UNIT, SIDE, BAR] = [54, 304, 34];
const said = (number, digits = 1) => number.toFixed(digits).replace("-", "−");

export default {
  render({ model, el }) {
    const { keys, who, axes, query, reach } = model.get("data");
    const now = [...query];
    const words = readout();
    const plane = drawPlane(keys, axes, reach, (place) => ask(place));
    const bars = drawBars(keys);
    const show = () => {
      const weights = weigh(now, keys);
      plane.show(now);
      bars.show(score(now, keys), weights);
      const each = keys.map(([name], i) => `${name} ${weights[i].toFixed(2)}`).join(", ");
      words.textContent = `“${who}” asks with (${now.map((x) => said(x)).join(", ")}): ${each}.`;
    };
    const ask = (place) => {
      place.forEach((x, i) => {
        now[i] = Math.round(10 * Math.min(reach[1], Math.max(reach[0], x))) / 10;
        knobs[i].show(now[i]);
      });
      show();
    };
    const [min, max] = reach;
    const knobs = axes.map((name, i) =>
      slider({
        label: `asks for ${name}`,
        ...{ min, max, step: 0.1, value: query[i], say: (x) => said(x) },
        move: (x) => ((now[i] = x), show()),
      }),
    );
    const controls = knobs.map(({ label }) => label);
    el.append(
      element("div", { class: "aa-panels" }, plane.root, bars.root),
      element("div", { class: "aa-controls aa-grid" }, ...controls),
      words,
    );
    show();
  },
};

function drawPlane(keys, axes, reach, ask) {
  const root = svg("svg", { viewBox: `0 0 ${SIDE} ${SIDE}`, role: "img", fill: "currentColor" });
  const zero = 12 - reach[0] * UNIT;
  const [x, y] = [(number) => zero + number * UNIT, (number) => SIDE - zero - number * UNIT];
  const line = (more) => svg("line", { stroke: "#808080", ...more });
  const through = keys.map(() => line({ "stroke-dasharray": "4 4" }));
  const long = line({ "stroke-opacity": 0.6 });
  const arrow = line({ x1: x(0), y1: y(0), "stroke-width": 4, style: "stroke: var(--aa-n)" });
  const tip = svg("circle", { r: 7, fill: "var(--aa-n)" });
  const handle = svg("g", {}, svg("circle", { r: 22, fill: "transparent" }), tip);
  drag(root, handle, (u, v) => ask([(u - zero) / UNIT, (SIDE - zero - v) / UNIT]));
  const places = keys.flatMap(([name, [a, b]]) => [
    svg("circle", { cx: x(a), cy: y(b), r: 5, fill: "var(--aa-m)" }),
    label(name, x(a) + (a ? 8 : -26), y(b) + (a ? -9 : 16), {
      fill: "var(--aa-m)",
      "font-size": 13,
      style: HALO,
    }),
  ]);
  root.append(
    svg("path", { d: `M12 ${y(0)}H${SIDE}M${x(0)} ${SIDE - 12}V0`, stroke: "#808080" }),
    ...through,
    label(`${axes[0]} →`, SIDE - 30, y(0) + 16, { style: HALO }),
    label(`${axes[1]} ↑`, x(0) - 36, 14, { style: HALO }),
    ...[long, ...places, arrow, handle],
  );
  const put = (made, from, to) =>
    [from, to].forEach(([a, b], i) => {
      made.setAttribute(`x${i + 1}`, x(a));
      made.setAttribute(`y${i + 1}`, y(b));
    });
  const show = ([a, b]) => {
    const size = Math.hypot(a, b) || 1;
    put(arrow, [0, 0], [a, b]);
    put(long, [(-9 * a) / size, (-9 * b) / size], [(9 * a) / size, (9 * b) / size]);
    keys.forEach(([, [u, v]], i) => {
      const [right, up] = [(-9 * b) / size, (9 * a) / size];
      put(through[i], [u - right, v - up], [u + right, v + up]);
    });
    handle.setAttribute("transform", `translate(${x(a)} ${y(b)})`);
    root.setAttribute("aria-label", `The query points at (${said(a)}, ${said(b)}).`);
  };
  return { root, show };
}

function drawBars(keys) {
  const height = BAR * keys.length + 24;
  const root = svg("svg", { viewBox: `0 0 320 ${height}`, role: "img", fill: "currentColor" });
  const text = (x, i, more) => label("", x, 24 + BAR * (i + 0.5) + 4, { "font-size": 13, ...more });
  const rows = keys.map((_, i) => ({
    bar: svg("rect", { x: 120, y: 24 + BAR * i + 6, height: BAR - 12, fill: "var(--aa-h)" }),
    name: text(66, i, { "text-anchor": "end" }),
    score: text(110, i, { "text-anchor": "end" }),
    weight: text(0, i, { "text-anchor": "start" }),
  }));
  root.append(label("score", 98, 14), label("weight", 142, 14));
  root.append(...rows.flatMap((row) => Object.values(row)));
  const show = (scores, weights) =>
    rows.forEach(({ bar, name, score, weight }, i) => {
      bar.setAttribute("width", 150 * weights[i]);
      name.textContent = keys[i][0];
      score.textContent = said(scores[i]);
      weight.textContent = weights[i].toFixed(2);
      weight.setAttribute("x", 126 + 150 * weights[i]);
    });
  return { root, show };
}
