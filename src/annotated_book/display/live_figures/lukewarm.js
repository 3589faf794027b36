// Lukewarm: a scene is a point, the warmths of cat and milk; a head brings home one mix of the two.
//
// names: of the two numbers; scene: where the point begins, and what it is called there
// other: a name and a scene; both scenes stay where they are
// share: of the first, in the mix of head 1; head 2 has them the other way round
// Dragged, the point keeps to the line of head 1; with a second head it cannot move. Sliders are free.
// reach: the greatest number on either axis. A test compares the mixes with Python's.
import { button, element, readout, slider, svg } from "./host/figure.js";
import { drag } from "./host/drag.js";
import { HALO, label } from "./host/panel.js";

/** Mix two numbers; the first has this share. */
export const mix = ([first, second], share) => share * first + (1 - share) * second;

/** Give the scene next to a place of those in tenths where, with this share, the mix is the same. */
export function along([first, second], share, [x, y], reach) {
  const part = Math.round(20 * share); // shares are twentieths
  const divisor = (a, b) => (b ? divisor(b, a % b) : a);
  const step = [part - 20, part].map((each) => each / divisor(part, 20 - part));
  const [from, most] = [[first, second].map((each) => Math.round(10 * each)), 10 * reach];
  const wanted = (10 * x - from[0]) * step[0] + (10 * y - from[1]) * step[1];
  let steps = Math.round(wanted / (step[0] ** 2 + step[1] ** 2));
  const end = () => from.map((each, i) => each + steps * step[i]);
  while (steps && end().some((each) => Math.abs(each) > most)) steps -= Math.sign(steps);
  return end().map((each) => each / 10);
}

const [SIDE, EDGE] = [300, 22];
const said = (number, digits = 1) => number.toFixed(digits).replace("-", "−");

export default {
  render({ model, el }) {
    const { names, scene, called, other, share, reach } = model.get("data");
    const now = { scene: [...scene], share, second: false };
    const plane = drawPlane(names, [[called, scene], other], reach, (place) => go(place));
    const words = readout();
    const show = () => {
      const mixes = [mix(now.scene, now.share), mix(now.scene, 1 - now.share)];
      const found = now.second ? mixes : mixes.slice(0, 1);
      const same = now.second && Math.abs(now.share - 0.5) < 0.01;
      plane.show(now.scene, now.second ? [now.share, 1 - now.share] : [now.share]);
      two.setAttribute("aria-pressed", String(now.second));
      const homes = found.map((number, i) => `head ${i + 1} brings home ${said(number, 2)}`);
      const what = names.map((name, i) => `${name} ${said(now.scene[i])}`).join(", ");
      const many = same
        ? "Two heads that look alike are one."
        : "Only this scene gives both, so the point cannot be dragged.";
      words.textContent = `${what}: ${homes.join(", ")}. ${
        now.second ? many : "So does every scene on the line."
      }`;
    };
    const go = (place) => {
      if (now.second && Math.abs(now.share - 0.5) > 0.01) return;
      now.scene = along(now.scene, now.share, place, reach);
      knobs.forEach(({ show }, i) => show(now.scene[i]));
      show();
    };
    const knobs = names.map((name, i) =>
      slider({
        label: `${name} is`,
        ...{ min: -reach, max: reach, step: 0.1, value: scene[i], say: (x) => said(x) },
        move: (x) => ((now.scene[i] = x), show()),
      }),
    );
    const shares = slider({
      label: "share",
      ...{ min: 0, max: 1, step: 0.05, value: share, say: (x) => x.toFixed(2) },
      move: (x) => ((now.share = x), show()),
    });
    const two = button("a second head", () => ((now.second = !now.second), show()));
    const controls = [...knobs, shares].map(({ label }) => label);
    const desk = element("div", { class: "aa-knobs" }, ...controls, two, words);
    el.append(element("div", { class: "aa-panels" }, plane.root, desk));
    show();
  },
};

const LOOKS = [{ stroke: "var(--aa-h)" }, { stroke: "var(--aa-d)", "stroke-dasharray": "7 4" }];

function drawPlane(names, scenes, reach, go) {
  const box = `0 0 ${SIDE} ${SIDE}`;
  const root = svg("svg", { viewBox: box, role: "img", fill: "currentColor" });
  const unit = (SIDE / 2 - EDGE) / reach;
  const [x, y] = [(number) => SIDE / 2 + number * unit, (number) => SIDE / 2 - number * unit];
  const lines = LOOKS.map((look) => svg("line", { "stroke-width": 2.5, ...look }));
  const written = (text, x, y, more) => label(text, x, y, { style: HALO, ...more });
  const heads = LOOKS.map(({ stroke }, i) =>
    written("", SIDE - 4, EDGE + 24 + 18 * i, { "text-anchor": "end", fill: stroke }),
  );
  const named = scenes.flatMap(([name, [a, b]]) => [
    svg("circle", { cx: x(a), cy: y(b), r: 4 }),
    written(name, x(a) + (b > 0 ? -10 : 10), y(b) + (b > 0 ? 4 : 12), {
      "text-anchor": b > 0 ? "end" : "start",
    }),
  ]);
  const point = svg("circle", { r: 7 });
  const handle = svg("g", {}, svg("circle", { r: 22, fill: "transparent" }), point);
  drag(root, handle, (u, v) => go([(u - SIDE / 2) / unit, (SIDE / 2 - v) / unit]));
  const cross = `M${EDGE} ${y(0)}H${SIDE - EDGE}M${x(0)} ${SIDE - EDGE}V${EDGE}`;
  const ticks = [-4, -2, 2, 4];
  const notches = ticks.map((at) => `M${x(at)} ${y(0) - 3}v6M${x(0) - 3} ${y(at)}h6`);
  root.append(
    svg("path", { d: cross + notches.join(""), stroke: "#808080" }),
    ...lines,
    ...ticks.map((at) => written(said(at, 0), x(at), y(0) + 16, { "font-size": 11 })),
    ...[-4, -2, 2].map((at) => written(said(at, 0), x(0) - 14, y(at) + 4, { "font-size": 11 })),
    written(`${names[0]} →`, SIDE - 34, y(0) - 8),
    written(`${names[1]} ↑`, x(0) + 30, EDGE + 2),
    ...named,
    ...heads,
    handle,
  );
  const show = ([a, b], shares) => {
    lines.forEach((line, i) => {
      const share = shares[i] ?? 0;
      const far = i < shares.length ? 2 * reach : 0;
      heads[i].textContent = far ? `head ${i + 1}: share ${share.toFixed(2)}` : "";
      const ends = [-far, far].map((t) => [a - t * (1 - share), b + t * share]);
      ends.forEach(([u, v], end) => {
        line.setAttribute(`x${end + 1}`, x(u));
        line.setAttribute(`y${end + 1}`, y(v));
      });
    });
    handle.setAttribute("transform", `translate(${x(a)} ${y(b)})`);
    root.setAttribute("aria-label", `The scene ${names[0]} ${said(a)}, ${names[1]} ${said(b)}.`);
  };
  return { root, show };
}
