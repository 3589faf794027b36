// Two arrows that turn with their positions: a query's pair of features and a key's.
//
// query, key: two numbers each; words: what they belong to
// speed: radians per position; positions: how many there are for the key; farthest: the largest distance
// "key at", distance: where the sliders begin; the query stands `distance` behind the key
//
// A test compares every number with Python's rotation.
import { element, readout, slider, svg } from "./host/figure.js";
import { HEIGHT, LEFT, LOW, RIGHT, TOP, WIDTH, label, panel } from "./host/panel.js";

/** Turn two numbers, read as an arrow, counterclockwise. */
export const turn = ([x, y], angle) => [
  x * Math.cos(angle) - y * Math.sin(angle),
  y * Math.cos(angle) + x * Math.sin(angle),
];

/** Give the dot product of a query and a key at these positions. */
export function score(query, key, queryAt, keyAt, speed) {
  const [a, b] = [turn(query, queryAt * speed), turn(key, keyAt * speed)];
  return a[0] * b[0] + a[1] * b[1];
}

const minus = (text) => text.replaceAll("-", "−");

export default {
  render({ model, el }) {
    const { query, key, words, speed, positions, farthest, ...start } = model.get("data");
    const now = { "key at": start["key at"], distance: start.distance };
    const said = readout();
    const lines = [0, 1].map(() => element("span", { style: "display: block" }));
    said.append(...lines);
    const dial = drawDial(query, key, words);
    const curve = drawCurve((distance) => score(query, key, distance, 0, speed), farthest);
    const show = () => {
      const keyAt = now["key at"];
      const at = keyAt + now.distance;
      const number = score(query, key, at, keyAt, speed);
      dial.show(turn(query, at * speed), turn(key, keyAt * speed), at, keyAt);
      curve.show(now.distance, number);
      const angles = [at, keyAt].map((position) => (position * speed).toFixed(2));
      lines[0].textContent = `${words[0]} stands at ${at}, ${words[1]} at ${keyAt}: turned by ${angles.join(" and ")}. `;
      lines[1].textContent = minus(
        `At distance ${now.distance} the score is ${number.toFixed(2)}.`,
      );
    };
    const knob = (text, name, max) =>
      slider({ label: text, max, value: now[name], move: (value) => ((now[name] = value), show()) })
        .label;
    const controls = element(
      "div",
      { class: "aa-controls aa-grid" },
      knob(`${words[1]} at`, "key at", positions - 1),
      knob("distance", "distance", farthest),
    );
    el.append(element("div", { class: "aa-panels" }, dial.root, curve.root), controls, said);
    show();
  },
};

function drawDial(query, key, words) {
  const root = svg("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, role: "img", fill: "currentColor" });
  const [x, y, radius] = [WIDTH / 2, HEIGHT / 2, HEIGHT / 2 - 6];
  const unit = radius / Math.max(Math.hypot(...query), Math.hypot(...key));
  const ring = svg("circle", { cx: x, cy: y, r: radius, fill: "none", stroke: "#808080" });
  const arrows = [
    ["n", 4, 5],
    ["m", 2.2, 4],
  ].map(([letter, width, r]) => ({
    line: svg("line", {
      x1: x,
      y1: y,
      stroke: `var(--aa-${letter})`,
      "stroke-width": width,
      "stroke-linecap": "round",
    }),
    tip: svg("circle", { r, fill: `var(--aa-${letter})` }),
  }));
  const names = words.map((word, i) =>
    label(`${word} (${[query, key][i].join(", ")})`, i ? WIDTH - 36 : 36, 16, {
      fill: `var(--aa-${"nm"[i]})`,
      "font-size": 13,
      "font-weight": i ? 400 : 700,
    }),
  );
  root.append(ring, ...arrows.flatMap(({ line, tip }) => [line, tip]), ...names);
  return {
    root,
    show(a, b, at, keyAt) {
      [a, b].forEach(([right, up], i) => {
        const { line, tip } = arrows[i];
        const [tipX, tipY] = [x + unit * right, y - unit * up];
        line.setAttribute("x2", tipX);
        line.setAttribute("y2", tipY);
        tip.setAttribute("cx", tipX);
        tip.setAttribute("cy", tipY);
      });
      const texts = [a, b].map((arrow) => arrow.map((number) => number.toFixed(2)).join(", "));
      root.setAttribute(
        "aria-label",
        `Arrows: ${words[0]} at ${at}: ${texts[0]}; ${words[1]} at ${keyAt}: ${texts[1]}.`,
      );
    },
  };
}

function drawCurve(at, farthest) {
  const { root, show } = panel("distance");
  const scores = Array.from({ length: farthest + 1 }, (_, r) => at(r));
  const most = Math.max(...scores.map(Math.abs));
  const x = (distance) => LEFT + (distance / farthest) * (RIGHT - LEFT);
  const y = (value) => (TOP + LOW) / 2 - (value / most) * ((LOW - TOP) / 2);
  const points = scores.map((value, r) =>
    svg("circle", { cx: x(r), cy: y(value), r: 3, fill: "#808080" }),
  );
  const between = Array.from(
    { length: 10 * farthest + 1 },
    (_, i) => `${i ? "L" : "M"}${x(i / 10)} ${y(at(i / 10))}`,
  );
  const line = svg("path", {
    d: between.join(""),
    fill: "none",
    stroke: "#808080",
    "stroke-width": 1,
  });
  const zero = svg("path", {
    d: `M${LEFT} ${y(0)}H${RIGHT}`,
    stroke: "#808080",
    "stroke-dasharray": "2 4",
  });
  const dot = svg("circle", { r: 6, fill: "none", stroke: "var(--aa-n)", "stroke-width": 2.5 });
  for (let r = 0; r <= farthest; r += 5) root.append(label(r, x(r), LOW + 15, { "font-size": 11 }));
  const sides = [-most, 0, most].map((value) =>
    label(minus(value.toFixed(1)), LEFT - 5, y(value) + 4, {
      "text-anchor": "end",
      "font-size": 11,
    }),
  );
  root.append(zero, line, ...points, dot, ...sides);
  return {
    root,
    show(distance, number) {
      dot.setAttribute("cx", x(distance));
      dot.setAttribute("cy", y(number));
      show(
        "score",
        `Score by distance: ${scores.map((value, r) => `${value.toFixed(2)} at ${r}`).join(", ")}.`,
      );
    },
  };
}
