// Lukewarm: a scene is a point, the warmths of cat and milk; a head brings home one mix of the two.
//
// names: of the two numbers; scenes: two of them, each a name and its numbers; they stay where they are
// share: of the first, in the mix of head 1; head 2 has them the other way round
// The reader leans the head until it tells the two apart. A third scene then lies on the line of the first, whatever
// the share, and can be dragged along it: head 1 brings home the same from both, and head 2 does not.
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

/** Give the two ends, within reach, of the line on which the mix is the same as in a scene. */
export const ends = (scene, share, reach) =>
  [-3, 3].map((far) => along(scene, share, [-far * reach, far * reach], reach));

const [SIDE, EDGE] = [300, 22];
const said = (number, digits = 1) =>
  (Math.abs(number) < 1e-9 ? 0 : number).toFixed(digits).replace("-", "−");

export default {
  render({ model, el }) {
    const { names, scenes, share, reach } = model.get("data");
    const [[called, first], [other, second]] = scenes;
    const now = { share, part: null, two: false }; // part: of its line, where the third scene is
    const plane = drawPlane(names, scenes, reach, (place) => go(place));
    const words = readout();
    const third = () => {
      if (now.part === null) return null;
      const [low, high] = ends(first, now.share, reach);
      const place = low.map((number, i) => number + now.part * (high[i] - number));
      return along(first, now.share, place, reach);
    };
    const shown = () => [now.share, 1 - now.share].slice(0, 1 + now.two);
    const homes = (scene) => shown().map((part) => said(mix(scene, part), 2));
    const from = (name, scene) => `${name}: ${homes(scene).join(" and ")}`;
    const verdict = (name, scene) =>
      `You ${homes(scene).join() === homes(first).join() ? "cannot" : "can"} tell ${name} from ${called}.`;
    const show = () => {
      const scene = third();
      plane.show(
        scene,
        shown(),
        [first, second].map((each) => homes(each).join(", ")),
      );
      two.setAttribute("aria-pressed", String(now.two));
      moves.show(now.part ?? 1);
      const where = scene && names.map((name, i) => `${name} ${said(scene[i])}`).join(", ");
      const more = scene ? `. ${from(where, scene)}. ${verdict(`(${where})`, scene)}` : "";
      words.textContent =
        `${from(called, first)}. ${from(other, second)}` + (more || `. ${verdict(other, second)}`);
    };
    const go = (where) => {
      const [low, high] = ends(first, now.share, reach);
      const [way, gone] = [high, where].map((end) => end.map((number, i) => number - low[i]));
      const dot = (u) => u[0] * way[0] + u[1] * way[1];
      now.part = Math.min(1, Math.max(0, dot(gone) / dot(way)));
      show();
    };
    const shares = slider({
      label: `${names[0]}'s share`,
      ...{ min: 0, max: 1, step: 0.05, value: share, say: (x) => x.toFixed(2) },
      move: (x) => ((now.share = x), show()),
    });
    const moves = slider({
      label: "along it",
      ...{
        min: 0,
        max: 1,
        step: 0.05,
        value: 1,
        say: () =>
          third()
            ?.map((x) => said(x))
            .join(", ") ?? "",
      },
      move: (part) => ((now.part = part), show()),
    });
    const confuse = button("confuse the head", () => ((now.part = 1), show()));
    const two = button("a second head", () => ((now.two = !now.two), show()));
    const desk = element(
      "div",
      { class: "aa-knobs" },
      shares.label,
      confuse,
      moves.label,
      two,
      words,
    );
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
    written("", 4, SIDE - 22 + 17 * i, { "text-anchor": "start", fill: stroke }),
  );
  const under = (text, [a, b], line) =>
    written(text, x(a) - 3, y(b) + 18 + 16 * line, { "text-anchor": "end" });
  const called = scenes.map(([name, at]) => under(name, at, 0));
  const brought = scenes.map(([, at]) => under("", at, 1));
  const dots = scenes.map(([, [a, b]]) => svg("circle", { cx: x(a), cy: y(b), r: 5 }));
  const ring = { r: 7, fill: "var(--md-default-bg-color, Canvas)", stroke: "currentColor" };
  const point = svg("circle", { ...ring, "stroke-width": 2.5 });
  const handle = svg("g", {}, svg("circle", { r: 22, fill: "transparent" }), point);
  drag(root, handle, (u, v) => go([(u - SIDE / 2) / unit, (SIDE / 2 - v) / unit]));
  const cross = `M${EDGE} ${y(0)}H${SIDE - EDGE}M${x(0)} ${SIDE - EDGE}V${EDGE}`;
  const ticks = [-4, -2, 2, 4];
  const notches = ticks.map((at) => `M${x(at)} ${y(0) - 3}v6M${x(0) - 3} ${y(at)}h6`);
  root.append(
    svg("path", { d: cross + notches.join(""), stroke: "#808080" }),
    ...lines,
    ...ticks.map((at) => written(said(at, 0), x(at), y(0) + 16, { "font-size": 11 })),
    ...[-2, 2].map((at) => written(said(at, 0), x(0) - 14, y(at) + 4, { "font-size": 11 })),
    written(`${names[0]} →`, SIDE - 34, y(0) - 8),
    written(`${names[1]} ↑`, x(0) + 30, EDGE + 2),
    ...called,
    ...brought,
    ...dots,
    ...heads,
    handle,
  );
  const show = (third, shares, homes) => {
    const [[, [a, b]]] = scenes;
    lines.forEach((line, i) => {
      const share = shares[i] ?? 0;
      const far = i < shares.length ? 4 * reach : 0;
      heads[i].textContent = far ? `head ${i + 1}: cat's share ${share.toFixed(2)}` : "";
      const both = [-far, far].map((t) => [a - t * (1 - share), b + t * share]);
      both.forEach(([u, v], end) => {
        line.setAttribute(`x${end + 1}`, x(u));
        line.setAttribute(`y${end + 1}`, y(v));
      });
    });
    brought.forEach((text, i) => (text.textContent = homes[i]));
    handle.setAttribute("visibility", third ? "visible" : "hidden");
    const [u, v] = third ?? [a, b];
    handle.setAttribute("transform", `translate(${x(u)} ${y(v)})`);
    root.setAttribute(
      "aria-label",
      `Two scenes, ${scenes.map(([name]) => name).join(" and ")}; the line of one.`,
    );
  };
  return { root, show };
}
