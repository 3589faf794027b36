// What states say of a key as facts are written into them, each by a rule of its own.
//
// keys: of each its features; places: the names of a value's features; facts: key and place each; rules: of each its
//   name, its gate, and whether it corrects what the state says, by β, or only adds; asked: the first to be asked for.
// At a new chapter a gate below 1 closes: it is 0, once.
import { button, element, readout, slider, svg } from "./host/figure.js";

const [SIDE, CELL, FLOOR, UNIT] = [150, 46, 214, 48]; // a drawing, a cell, where bars stand, and how high 1 is

export default {
  render({ model, el }) {
    const { keys, places, facts, rules, asked } = model.get("data");
    const now = { told: [0], asked, share: 1 };
    const said = readout();
    const drawn = rules.map(([rule]) => draw(rule, places));
    const show = () => {
      const told = now.told.map((at) => facts[at]);
      const answers = rules.map(([rule, gate, corrects], i) => {
        const share = corrects && now.share;
        const { state, answer } = written(keys, places, told, gate, share, now.asked);
        drawn[i].show(state, answer, now.asked);
        return `${rule}: ${spoken(places, answer)}`;
      });
      const list = told.map((fact) => fact?.join(" in the ") ?? "a new chapter").join("; ");
      said.textContent = told.length
        ? `Told: ${list}. Where is the ${now.asked}? ${answers.join(". ")}.`
        : "Nothing is told yet: all states are empty.";
      asks.forEach((each) =>
        each.setAttribute("aria-pressed", String(each.dataset.key === now.asked)),
      );
    };
    const tell = facts.map(([who, where], at) =>
      button(`the ${who} is in the ${where}`, () => (now.told.push(at), show())),
    );
    const turn = button("a new chapter begins", () => (now.told.push(-1), show()));
    const again = button("forget all", () => ((now.told = []), show()));
    const move = (share) => ((now.share = share), show());
    const say = (share) => share.toFixed(1);
    const beta = slider({ label: "β", min: 0.1, max: 1, step: 0.1, value: 1, say, move });
    const asks = Object.keys(keys).map((key) => {
      const each = button(`where is the ${key}?`, () => ((now.asked = key), show()));
      each.dataset.key = key;
      return each;
    });
    el.append(
      element("div", { class: "aa-controls" }, ...tell, turn, again),
      element("div", { class: "aa-controls aa-endings" }, ...asks, beta.label),
      element("div", { class: "aa-erases" }, ...drawn.map((each) => each.root)),
      said,
    );
    show();
  },
};

/** Write facts into a state, one after the other, and ask it for a key; without a β (corrects), only add. */
export function written(keys, places, facts, gate, corrects, asked) {
  const dot = (key, state, y) => key.reduce((sum, x, i) => sum + x * state[i][y], 0);
  let state = keys[asked].map(() => places.map(() => 0));
  for (const fact of facts) {
    if (!fact) {
      state = state.map((row) => row.map((x) => (gate < 1 ? 0 : x)));
      continue;
    }
    const [key, where, share] = [keys[fact[0]], fact[1], corrects || 1];
    const faded = state.map((row) => row.map((x) => gate * x));
    const says = places.map((_, y) => corrects && dot(key, faded, y));
    const writes = places.map((place, y) => share * ((place === where) - says[y]));
    state = faded.map((row, i) => row.map((x, y) => x + key[i] * writes[y]));
  }
  return { state, answer: places.map((_, y) => dot(keys[asked], state, y)) };
}

const plain = (x) =>
  x
    .toFixed(2)
    .replace(/^-0.00$/, "0.00")
    .replace("-", "−");

function spoken(places, answer) {
  const named = places.map((place, y) => [place, answer[y]]).filter(([, x]) => Math.abs(x) > 0.005);
  return named.map(([place, x]) => `${place} ${plain(x)}`).join(", ") || "nothing";
}

function draw(rule, places) {
  const root = svg("svg", {
    viewBox: `0 0 ${SIDE} 242`,
    role: "img",
    "font-size": 13,
    "text-anchor": "middle",
    fill: "currentColor",
  });
  root.append(svg("text", { x: SIDE / 2, y: 12, "font-weight": "bold" }, rule));
  const x = (y) => SIDE / 2 + (y - (places.length - 1) / 2) * CELL;
  const cells = [];
  const bars = places.map((place, y) => {
    const look = { x: x(y) - 14, width: 28, fill: "var(--aa-m)", "fill-opacity": 0.6 };
    const bar = svg("rect", look);
    const number = svg("text", { x: x(y) });
    root.append(bar, number, svg("text", { x: x(y), y: 236, "font-size": 12 }, place));
    return { bar, number };
  });
  const floor = { x1: 4, x2: SIDE - 4, y1: FLOOR, y2: FLOOR, stroke: "currentColor" };
  root.append(svg("line", floor));
  const show = (state, answer, asked) => {
    while (cells.length) cells.pop().remove();
    state.forEach((row, i) =>
      row.forEach((value, y) => {
        const place = { x: x(y) - CELL / 2 + 1, y: 20 + i * 34, width: CELL - 2, height: 32 };
        const edge = { stroke: "currentColor", "stroke-opacity": 0.3 };
        const strength = Math.min(Math.abs(value), 1) * 0.6;
        const fill = `var(--aa-${value < 0 ? "n" : "h"})`;
        const box = svg("rect", { ...place, ...edge, fill, "fill-opacity": strength });
        const text = svg("text", { x: x(y), y: 41 + i * 34 }, plain(value));
        cells.push(box, text);
        root.append(box, text);
      }),
    );
    bars.forEach(({ bar, number }, y) => {
      const high = Math.min(Math.abs(answer[y]), 1.6) * UNIT;
      bar.setAttribute("height", high);
      bar.setAttribute("y", answer[y] < 0 ? FLOOR : FLOOR - high);
      number.setAttribute("y", answer[y] < 0 ? FLOOR - 4 : FLOOR - high - 4);
      number.textContent = Math.abs(answer[y]) > 0.005 ? plain(answer[y]) : "";
    });
    root.setAttribute("aria-label", `${rule}, asked for the ${asked}: ${spoken(places, answer)}.`);
  };
  return { root, show };
}
