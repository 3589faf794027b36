// The clocks of the sinusoidal code: each pair of its numbers is the hand of a clock, read as (sin, cos).
//
// clocks: how many there are; clock i turns by base ** (-i / clocks) per position
// base: 10000 in the paper
// positions: how many there are; position, distance: where the sliders begin
//
// A test compares every number with Python's code.
import { element, readout, slider, svg } from "./host/figure.js";
import { label } from "./host/panel.js";

/** Give the angle of each hand at a position, clockwise from the top. */
export const angles = (position, clocks, base) =>
  Array.from({ length: clocks }, (_, i) => position / base ** (i / clocks));

/** Give the code of a position: sine and cosine of each angle. */
export const code = (position, clocks, base) =>
  angles(position, clocks, base).flatMap((angle) => [Math.sin(angle), Math.cos(angle)]);

/** Multiply two codes, and add up. */
export const dot = (one, other) => one.reduce((sum, number, i) => sum + number * other[i], 0);

const [SIZE, RADIUS] = [132, 48];

export default {
  render({ model, el }) {
    const { clocks, base, positions, ...start } = model.get("data");
    const now = { position: start.position, distance: start.distance };
    const said = readout();
    const lines = [0, 1].map(() => element("span", { style: "display: block" }));
    said.append(...lines);
    const faces = Array.from({ length: clocks }, (_, i) => drawClock(i));
    const show = () => {
      const other = now.position + now.distance;
      const [first, second] = [now.position, other].map((at) => code(at, clocks, base));
      const hands = [now.position, other].map((at) => angles(at, clocks, base));
      faces.forEach(({ show }, i) => show(hands[0][i], hands[1][i], first.slice(2 * i, 2 * i + 2)));
      lines[0].textContent = `Position ${now.position}: turned by ${hands[0].map((angle) => angle.toFixed(2)).join(", ")}. `;
      lines[1].textContent = `Its dot product with position ${other} is ${dot(first, second).toFixed(2)}.`;
    };
    const knob = (name, max) =>
      slider({ label: name, max, value: now[name], move: (value) => ((now[name] = value), show()) })
        .label;
    const controls = element(
      "div",
      { class: "aa-controls aa-grid" },
      knob("position", positions - 1),
      knob("distance", 20),
    );
    el.append(
      element("div", { class: "aa-clocks" }, ...faces.map(({ root }) => root)),
      controls,
      said,
    );
    show();
  },
};

function drawClock(i) {
  const root = svg("svg", {
    viewBox: `0 0 ${SIZE} ${SIZE + 26}`,
    role: "img",
    fill: "currentColor",
  });
  const middle = SIZE / 2;
  const ring = svg("circle", {
    cx: middle,
    cy: middle + 12,
    r: RADIUS,
    fill: "none",
    stroke: "#808080",
  });
  const hand = (more) =>
    svg("line", { x1: middle, y1: middle + 12, "stroke-linecap": "round", ...more });
  const other = hand({ stroke: "var(--aa-h)", "stroke-width": 2.5, "stroke-dasharray": "5 4" });
  const own = hand({ stroke: "var(--aa-n)", "stroke-width": 4 });
  const numbers = label("", middle, SIZE + 20, { "font-size": 13 });
  const top = svg("path", {
    d: `M${middle} ${12 + middle - RADIUS}v7`,
    stroke: "#808080",
    "stroke-width": 2,
  });
  root.append(
    label(`clock ${i + 1}`, middle, 11, { "font-size": 13 }),
    ring,
    top,
    other,
    own,
    numbers,
  );
  const point = (line, angle) => {
    line.setAttribute("x2", middle + 0.92 * RADIUS * Math.sin(angle));
    line.setAttribute("y2", middle + 12 - 0.92 * RADIUS * Math.cos(angle));
  };
  return {
    root,
    show(angle, away, [sine, cosine]) {
      point(own, angle);
      point(other, away);
      numbers.textContent = `${sine.toFixed(2)}, ${cosine.toFixed(2)}`.replaceAll("-", "−");
      root.setAttribute(
        "aria-label",
        `Clock ${i + 1}: sine ${sine.toFixed(2)}, cosine ${cosine.toFixed(2)}.`,
      );
    },
  };
}
