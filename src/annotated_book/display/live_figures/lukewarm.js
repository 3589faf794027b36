// Lukewarm: a scene is a point, the warmths of cat and milk; a head brings home one mix of the two.
//
// names: of the two numbers; scenes: each a name and its numbers; two stay where they are, the last is named when met
// share: of the first, in the mix of head 1; head 2 has them the other way round
// The reader leans the head until it tells the two apart. A third scene then lies on the line of the first, whatever
// the share, and can be dragged along it: head 1 brings home the same from both, and head 2 does not.
// reach: the greatest number on either axis. A test compares the mixes with Python's.
import { button, element, readout, slider, svg } from "./host/figure.js";
import { drag } from "./host/drag.js";
import { glass } from "./glasses.js";
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
    const { names, share, reach, scenes: given } = model.get("data");
    const [scenes, known] = [given.slice(0, 2), given[2]];
    const [[called, first]] = scenes;
    const now = { share, part: null, heads: 1 }; // part: of its line, where the third scene is
    const third = () => {
      const [low, high] = ends(first, now.share, reach);
      const place = low.map((number, i) => number + now.part * (high[i] - number));
      const at = along(first, now.share, place, reach);
      const met = at.every((number, i) => number === known[1][i]);
      const where = names.map((name, i) => `${name} ${said(at[i])}`).join(", ");
      return [met ? `${known[0]} (${where})` : where, at, met && known[0]];
    };
    const show = () => {
      const all = now.part === null ? scenes : [...scenes, third()];
      const shares = [now.share, 1 - now.share].slice(0, now.heads);
      const from = ([, at]) => shares.map((part) => said(mix(at, part), 2)).join(" and ");
      const [homes, [last]] = [all.map(from), all.at(-1)];
      plane.show(all, shares, homes);
      two.setAttribute("aria-pressed", String(now.heads === 2));
      moves.show(now.part ?? 1);
      moves.label.style.visibility = now.part === null ? "hidden" : "visible";
      const told = all.map(([name], i) => `${name}: ${homes[i]}. `).join("");
      const verdict = homes.at(-1) === homes[0] ? "cannot" : "can";
      const same = now.heads === 2 && now.share === 0.5;
      words.textContent =
        `${told}You ${verdict} tell ${last} from ${called}. ` +
        (same ? "Both heads have the same line: move the share." : "");
    };
    const set = (change) => (Object.assign(now, change), show());
    const plane = drawPlane(names, reach, (place) => {
      const [low, high] = ends(first, now.share, reach);
      const [way, gone] = [high, place].map((end) => end.map((number, i) => number - low[i]));
      const dot = (u) => u[0] * way[0] + u[1] * way[1];
      set({ part: Math.min(1, Math.max(0, dot(gone) / dot(way))) });
    });
    const knob = (label, value, move) =>
      slider({ label, max: 1, step: 0.05, value, say: (x) => x.toFixed(2), move });
    const shares = knob(`${names[0]}'s share`, share, (share) => set({ share }));
    const confuse = button("confuse the head", () => set({ part: 1 }));
    const moves = knob("third scene", 1, (part) => set({ part }));
    const two = button("a second head", () => set({ heads: 3 - now.heads }));
    const words = readout();
    const knobs = [shares.label, confuse, moves.label, two, words];
    const desk = element("div", { class: "aa-knobs" }, ...knobs);
    el.append(element("div", { class: "aa-panels" }, plane.root, desk));
    show();
  },
};

const LOOKS = [{ stroke: "var(--aa-h)" }, { stroke: "var(--aa-d)", "stroke-dasharray": "7 4" }];

function drawPlane(names, reach, go) {
  const box = `0 0 ${SIDE} ${SIDE}`;
  const root = svg("svg", { viewBox: box, role: "img", fill: "currentColor" });
  root.setAttribute("aria-label", "Scenes as points, and the line of the first for each head.");
  const unit = (SIDE / 2 - EDGE) / reach;
  const [x, y] = [(number) => SIDE / 2 + number * unit, (number) => SIDE / 2 - number * unit];
  const written = (text, x, y, more) => label(text, x, y, { style: HALO, ...more });
  const handle = svg("g", {}, svg("circle", { r: 22, fill: "transparent" }));
  handle.append(
    svg("circle", { r: 19, fill: "none", stroke: "#808080", "stroke-dasharray": "3 3" }),
  );
  drag(root, handle, (u, v) => go([(u - SIDE / 2) / unit, (SIDE / 2 - v) / unit]));
  const cross = `M${EDGE} ${y(0)}H${SIDE - EDGE}M${x(0)} ${SIDE - EDGE}V${EDGE}`;
  const ticks = [-4, -2, 2, 4];
  const notches = ticks.map((at) => `M${x(at)} ${y(0) - 3}v6M${x(0) - 3} ${y(at)}h6`);
  const drawn = svg("g");
  root.append(
    svg("path", { d: cross + notches.join(""), stroke: "#808080" }),
    ...ticks.map((at) => written(said(at, 0), x(at), y(0) + 16, { "font-size": 11 })),
    ...[-2, 2].map((at) => written(said(at, 0), x(0) - 14, y(at) + 4, { "font-size": 11 })),
    written(`${names[0]} →`, SIDE - 34, y(0) - 8),
    written(`${names[1]} ↑`, x(0) + 52, EDGE + 2),
    drawn,
    handle,
  );
  const show = (all, shares, homes) => {
    const [[, [a, b]]] = all;
    const lines = shares.flatMap((share, i) => {
      const [u, v] = [4 * reach * (1 - share), 4 * reach * share];
      const ends = { x1: x(a + u), y1: y(b - v), x2: x(a - u), y2: y(b + v) };
      const look = { "text-anchor": "start", fill: LOOKS[i].stroke };
      const text = `head ${i + 1}: ${names[0]}'s share ${share.toFixed(2)}`;
      const line = svg("line", { ...ends, ...LOOKS[i], "stroke-width": 2.5 });
      return [line, written(text, 4, SIDE - 22 + 17 * i, look)];
    });
    const points = all
      .slice(0, 2)
      .flatMap(([name, [a, b]], i) =>
        [name, homes[i]].map((text, line) =>
          written(text, x(a) - 3, y(b) + 26 + 16 * line, { "text-anchor": "end" }),
        ),
      );
    const glasses = all.flatMap(([, at]) =>
      shares.map((share, i) => {
        const aside = 11 * (2 * i + 1 - shares.length);
        return glass(x(at[0]) + aside, y(at[1]), mix(at, share), LOOKS[i].stroke);
      }),
    );
    drawn.replaceChildren(...lines, ...glasses, ...points);
    handle.setAttribute("visibility", all[2] ? "visible" : "hidden");
    if (!all[2]) return;
    const [, [u, v]] = all[2];
    handle.setAttribute("transform", `translate(${x(u)} ${y(v)})`);
    const side = { "text-anchor": u < 0 ? "start" : "end" };
    const [aside, below] = [x(u) + (u < 0 ? 3 : -3), y(v) + (v > 2 ? 34 : -24)];
    drawn.append(written(homes[2], aside, below, side));
    if (all[2][2]) drawn.append(written(all[2][2], aside, below + 16, side));
  };
  return { root, show };
}
