// Hands of one trained head: two pairs at a distance, and the score at every distance.
//
// ahead: of each pair, how far the query's hand stands ahead of the key's before they turn
// most: what each pair adds where its two hands meet
// ways: of each, by name, the speeds in radians per position, and a factor on the scores
// hands: the pairs that are drawn; trained: how many distances training showed; distance: the first
//
// A test compares every number with Python's rotation.
import { button, element, readout, slider, svg } from "./host/figure.js";
import { HEIGHT, LEFT, LOW, RIGHT, TOP, WIDTH, heights, label, panel } from "./host/panel.js";

/** Score a key at every distance up to the farthest. */
export const scores = (ahead, most, [speeds, factor], farthest) =>
  Array.from({ length: farthest + 1 }, (_, r) =>
    most.reduce((sum, m, i) => sum + factor * m * Math.cos(ahead[i] + speeds[i] * r), 0),
  );

/** Say what the score is at a distance, and where it is highest. */
export function told(line, distance) {
  const best = line.indexOf(Math.max(...line));
  const [here, highest, before] = [distance, best, 1].map((r) =>
    line[r].toFixed(2).replace("-", "−"),
  );
  return [
    `Distance ${distance}: the score is ${here}.`,
    `Highest: ${highest}, at distance ${best}; one letter back, ${before}.`,
  ];
}

const tip = (x, y, radius, angle) => [x - radius * Math.sin(angle), y - radius * Math.cos(angle)];

export default {
  render({ model, el }) {
    const { ahead, most, ways, hands, trained, farthest, distance } = model.get("data");
    const [names, first] = [Object.keys(ways), Object.values(ways)[0][0]];
    const now = { way: names[0], distance };
    const lines = Object.fromEntries(
      names.map((way) => [way, scores(ahead, most, ways[way], farthest)]),
    );
    const said = readout();
    const parts = [0, 1].map(() => element("span", { style: "display: block" }));
    said.append(...parts);
    const marks = names.map((way) => button(way, () => ((now.way = way), show())));
    const curve = drawCurve(Object.values(lines), trained, farthest);
    const dials = drawDials(hands, ahead, first, trained);
    const show = () => {
      const line = lines[now.way];
      curve.show(line, now.distance, now.way);
      dials.show(ways[now.way][0], now.distance);
      marks.forEach((mark, i) => mark.setAttribute("aria-pressed", String(names[i] === now.way)));
      told(line, now.distance).forEach((text, i) => (parts[i].textContent = `${text} `));
    };
    const { label: knob } = slider({
      label: "distance",
      max: farthest,
      value: distance,
      move: (value) => ((now.distance = value), show()),
    });
    el.append(
      element("div", { class: "aa-panels" }, curve.root, dials.root),
      element("div", { class: "aa-endings", role: "group", "aria-label": "rotation" }, ...marks),
      element("div", { class: "aa-controls" }, knob),
      said,
    );
    show();
  },
};

function drawCurve(all, trained, farthest) {
  const { root, show } = panel("distance");
  const [least, most] = [Math.min(...all.flat()), Math.max(...all.flat())];
  const x = (r) => LEFT + (r / farthest) * (RIGHT - LEFT);
  const y = (value) => LOW - ((value - least) / (most - least)) * (LOW - TOP);
  const grey = { x: LEFT, y: TOP, width: x(trained - 1) - LEFT, height: LOW - TOP };
  const path = svg("path", { fill: "none", stroke: "currentColor", "stroke-width": 1.2 });
  const dot = svg("circle", { r: 6, fill: "none", stroke: "var(--aa-n)", "stroke-width": 2.5 });
  const peak = svg("circle", { r: 4, fill: "var(--aa-h)" });
  const word = label("highest", 0, 0, { fill: "var(--aa-h)", "font-size": 11 });
  root.append(
    svg("rect", { ...grey, fill: "#808080", "fill-opacity": 0.25 }),
    path,
    peak,
    word,
    dot,
  );
  for (let r = 0; r <= farthest; r += 20)
    root.append(label(r, x(r), LOW + 15, { "font-size": 11 }));
  root.append(...heights(y, -5, 0, 5));
  const put = (circle, line, r) => {
    circle.setAttribute("cx", x(r));
    circle.setAttribute("cy", y(line[r]));
  };
  return {
    root,
    show(line, distance, way) {
      const best = line.indexOf(Math.max(...line));
      path.setAttribute(
        "d",
        line.map((value, r) => `${r ? "L" : "M"}${x(r)} ${y(value)}`).join(""),
      );
      put(dot, line, distance);
      put(peak, line, best);
      word.setAttribute("x", Math.min(Math.max(x(best), LEFT + 24), RIGHT - 24));
      word.setAttribute("y", y(line[best]) - 7);
      show(`score, ${way}`, `Score by distance, ${way}: highest at ${best}.`);
    },
  };
}

function drawDials(hands, ahead, first, trained) {
  const root = svg("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, role: "img", fill: "currentColor" });
  const [radius, y] = [66, 100];
  const line = (x, look) => svg("line", { x1: x, y1: y, "stroke-linecap": "round", ...look });
  const dials = Object.entries(hands).map(([name, pair], i) => {
    const x = 82 + 156 * i;
    const turned = Math.min(first[pair] * (trained - 1), 2 * Math.PI - 1e-3);
    const [from, to] = [0, turned].map((by) => tip(x, y, radius, ahead[pair] + by).join(" "));
    const sector = `M${x} ${y}L${from}A${radius} ${radius} 0 ${turned > Math.PI ? 1 : 0} 0 ${to}Z`;
    const hand = line(x, { stroke: "var(--aa-n)", "stroke-width": 4 });
    root.append(
      svg("path", { d: sector, fill: "#808080", "fill-opacity": 0.25 }),
      svg("circle", { cx: x, cy: y, r: radius, fill: "none", stroke: "#808080" }),
      line(x, { x2: x, y2: y - 0.92 * radius, stroke: "var(--aa-m)", "stroke-width": 2.2 }),
      hand,
      label(name, x, 20, { "font-size": 13 }),
    );
    return { x, pair, hand };
  });
  return {
    root,
    show(speeds, distance) {
      const where = dials.map(({ x, pair, hand }, i) => {
        const angle = ahead[pair] + speeds[pair] * distance;
        const [x2, y2] = tip(x, y, 0.92 * radius, angle);
        hand.setAttribute("x2", x2);
        hand.setAttribute("y2", y2);
        const degrees = Math.round(((angle * 180) / Math.PI) % 360);
        return `${Object.keys(hands)[i]} ${degrees} degrees ahead of the key's`;
      });
      root.setAttribute("aria-label", `Hands at distance ${distance}: ${where.join("; ")}.`);
    },
  };
}
