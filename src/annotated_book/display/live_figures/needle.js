// The needle: a query as an arrow among keys. A score is how far along it a key stands, times its length.
// sentences: the last word of each, and its keys: [name, [x, y], how many words have it, value] each
// who: the word that asks; axes: what x and y count, y also what is collected
// query: where the arrow begins; reach: the least and the greatest number on either axis; line: if any, above what the
//   sum means yes, and the question; found: what is said where the second sentence brings more than the first
//
// A test compares scores and weights with Python's.
import { button, element, readout, slider, svg } from "./host/figure.js";
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

/** Add up the values of all words, each times its weight. */
export const collect = (weights, keys) =>
  keys.reduce((sum, [, , many, value], i) => sum + weights[i] * many * value, 0);

const [UNIT, SIDE, BAR] = [54, 304, 34];
const said = (number, digits = 1) => number.toFixed(digits).replace("-", "−");

export default {
  render({ model, el }) {
    const { sentences, who, axes, query, reach, line, found } = model.get("data");
    const now = { query: [...query], sentence: 0 };
    const panels = element("div", { class: "aa-panels" });
    const words = readout();
    let plane, bars;
    const choose = (at) => {
      now.sentence = at;
      plane = drawPlane(sentences[at][1], axes, reach, (place) => ask(place));
      bars = drawBars(sentences[at][1], `${who} collects`, axes[1]);
      panels.replaceChildren(plane.root, bars.root);
      choices.forEach((choice, i) => choice.setAttribute("aria-pressed", String(i === at)));
      show();
    };
    const choices = sentences.map(([name], i) => button(name, () => choose(i)));
    const show = () => {
      const [, keys] = sentences[now.sentence];
      const scores = score(now.query, keys);
      const weights = weigh(now.query, keys);
      const sum = collect(weights, keys);
      plane.show(now.query);
      const verdict = line && (sum > line[0] ? "yes" : "no");
      bars.show(scores, weights, sum, verdict ? `: ${verdict}` : "");
      const each = keys.map(([name], i) => `${name} ${weights[i].toFixed(2)}`).join(", ");
      words.textContent =
        `The query is (${now.query.map((x) => said(x)).join(", ")}). Weights: ${each}. ` +
        `“${who}” collects ${sum.toFixed(2)} of ${axes[1]}.` +
        (verdict ? ` ${line[1]} ${verdict}.` : "") +
        solved();
    };
    const solved = () => {
      const sums = sentences.map(([, keys]) => collect(weigh(now.query, keys), keys));
      const each = sentences.map(([name], i) => `${sums[i].toFixed(2)} with “${name}”`);
      return found && sums[1] - sums[0] > 0.005 ? ` ${found}: ${each.reverse().join(", ")}.` : "";
    };
    const ask = (place) => {
      now.query = place.map((x) => Math.round(10 * Math.min(reach[1], Math.max(reach[0], x))) / 10);
      knobs.forEach(({ show }, i) => show(now.query[i]));
      show();
    };
    const [min, max] = reach;
    const knobs = axes.map((name, i) =>
      slider({
        label: `asks for ${name}`,
        ...{ min, max, step: 0.1, value: query[i], say: (x) => said(x) },
        move: (x) => ((now.query[i] = x), show()),
      }),
    );
    const controls = knobs.map(({ label }) => label);
    el.append(
      element("div", { class: "aa-controls aa-endings" }, `${who} was`, ...choices),
      panels,
      element("div", { class: "aa-controls aa-grid" }, ...controls),
      words,
    );
    choose(0);
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

function drawBars(keys, collects, what) {
  const height = BAR * (keys.length + 1) + 40;
  const root = svg("svg", { viewBox: `0 0 320 ${height}`, role: "img", fill: "currentColor" });
  const text = (x, i, more) => label("", x, 24 + BAR * (i + 0.5) + 4, { "font-size": 13, ...more });
  const rows = keys.map(([name], i) => ({
    bar: svg("rect", { x: 120, y: 24 + BAR * i + 6, height: BAR - 12, fill: "var(--aa-h)" }),
    name: label(name, 66, 24 + BAR * (i + 0.5) + 4, { "text-anchor": "end", "font-size": 13 }),
    score: text(110, i, { "text-anchor": "end" }),
    weight: text(0, i, { "text-anchor": "start" }),
  }));
  const low = 34 + BAR * (keys.length + 0.5);
  const strong = { "font-size": 13, "font-weight": "bold", fill: "var(--aa-d)" };
  const total = label("", 120, low + 4, { "text-anchor": "start", ...strong });
  root.append(label("score", 98, 14), label("weight", 142, 14), total);
  root.append(label(collects, 110, low + 4, { "text-anchor": "end", "font-size": 13 }));
  root.append(...rows.flatMap((row) => Object.values(row)));
  const show = (scores, weights, sum, verdict) => {
    total.textContent = `${sum.toFixed(2)} of ${what}${verdict}`;
    rows.forEach(({ bar, score, weight }, i) => {
      bar.setAttribute("width", 150 * weights[i]);
      score.textContent = said(scores[i]);
      weight.textContent = weights[i].toFixed(2);
      weight.setAttribute("x", 126 + 150 * weights[i]);
    });
  };
  return { root, show };
}
