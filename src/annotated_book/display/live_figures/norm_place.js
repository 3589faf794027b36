// The norm's place: a layer with the norms behind or before its sublayers, and what was measured of stacks.
//
// orders: for each order its parts, as they run, and its branches: [name, boxes, branches]
//   a box is [part, left, right, whether it is on the stream], a branch where it leaves the stream and is added
// depths: how many layers the stacks have
// measured: for each thing measured [name, {order: a row of numbers per depth, a number per layer}]
// order, depth: what is shown first
//
// A test compares the numbers with what Python measured.
import { element, readout, slider, svg } from "./host/figure.js";
import { HEIGHT, LEFT, LOW, RIGHT, TOP, WIDTH, heights, label, panel } from "./host/panel.js";

/** Say in words how the numbers run from the first layer to the last. */
export const run = (numbers) =>
  `${numbers[0].toPrecision(3)} in the first layer, ${numbers.at(-1).toPrecision(3)} in the last`;

export default {
  render({ model, el }) {
    const { orders, depths, measured, order, depth } = model.get("data");
    const now = { order, at: depths.indexOf(depth) };
    const said = readout();
    const lines = [0, ...measured].map(() => element("span", { style: "display: block" }));
    said.append(...lines);
    const layers = orders.map(([name, ...layer]) => [name, drawLayer(name, ...layer)]);
    const charts = measured.map(([name, rows]) => drawRows(name, rows, depths));
    const show = () => {
      for (const [name, { root }] of layers) root.style.display = name === now.order ? "" : "none";
      for (const [name, mark] of marks) mark.setAttribute("aria-pressed", name === now.order);
      lines[0].textContent = `${now.order}, ${depths[now.at]} layers. `;
      measured.forEach(([name, rows], i) => {
        charts[i].show(now);
        lines[i + 1].textContent = `${name}: ${run(rows[now.order][now.at])}. `;
      });
    };
    const marks = orders.map(([name]) => {
      const mark = element("button", { type: "button", class: "aa-mark" }, name);
      mark.addEventListener("click", () => ((now.order = name), show()));
      return [name, mark];
    });
    const stack = slider({
      label: "layers",
      max: depths.length - 1,
      value: now.at,
      say: (at) => String(depths[at]),
      move: (at) => ((now.at = at), show()),
    });
    const buttons = element(
      "div",
      { class: "aa-marks", role: "group", "aria-label": "place of the norm" },
      ...marks.map(([, mark]) => mark),
    );
    const knobs = element("div", { class: "aa-knobs" }, buttons, stack.label, said);
    const drawn = element("div", {}, ...layers.map(([, { root }]) => root));
    el.append(
      element("div", { class: "aa-panels" }, drawn, knobs, ...charts.map(({ root }) => root)),
    );
    show();
  },
};

const [STREAM, BRANCH] = [62, 118]; // heights
const BACKGROUND = "var(--md-default-bg-color, var(--jp-layout-color0, Canvas))";
const DASHES = ["2 3", "7 3", "none"]; // by depth
const COLOURS = { attention: "n", "feed-forward": "d", norm: "h" };

function drawLayer(name, boxes, branches) {
  const said = `A ${name} layer: ${boxes.map(([part]) => part).join(", ")}.`;
  const root = svg("svg", {
    viewBox: `0 0 ${WIDTH} ${HEIGHT}`,
    role: "img",
    "aria-label": said,
    fill: "currentColor",
  });
  const line = (d, more = {}) =>
    svg("path", { d, fill: "none", stroke: "currentColor", "stroke-width": 1.5, ...more });
  const stream = { stroke: "var(--aa-m)", "stroke-width": 4 };
  root.append(
    label(name, WIDTH / 2, 14),
    label("residual stream", LEFT - 22, STREAM - 22, {
      "text-anchor": "start",
      "font-size": 11,
      fill: "var(--aa-m)",
    }),
  );
  let from = 0; // the stream ends where a norm stands on it, and begins again behind it
  for (const [, left, right] of boxes.filter(([, , , onStream]) => onStream)) {
    root.append(line(`M${from} ${STREAM}H${left}`, stream));
    from = right;
  }
  root.append(
    line(`M${from} ${STREAM}H${WIDTH - 4}`, stream),
    line(`M${WIDTH - 9} ${STREAM - 6}l7 6l-7 6`, stream),
  );
  for (const [fork, join] of branches) {
    root.append(line(`M${fork} ${STREAM}V${BRANCH}H${join}V${STREAM + 9}`));
    const ring = { cx: join, cy: STREAM, r: 9, fill: BACKGROUND, stroke: "currentColor" };
    root.append(svg("circle", ring), label("+", join, STREAM + 5, { "font-size": 15 }));
  }
  for (const [part, left, right, onStream] of boxes) {
    const y = onStream ? STREAM : BRANCH;
    const frame = {
      x: left,
      y: y - 13,
      width: right - left,
      height: 26,
      rx: 4,
      stroke: `var(--aa-${COLOURS[part]})`,
      "stroke-width": 1.5,
    };
    root.append(svg("rect", { ...frame, fill: BACKGROUND }));
    root.append(label(part, (left + right) / 2, y + 4, { "font-size": 11 }));
  }
  return { root };
}

function drawRows(name, rows, depths) {
  const { root, show } = panel("layer, from input to output");
  const all = Object.entries(rows).flatMap(([order, each]) =>
    each.map((numbers, at) => ({ order, at, numbers })),
  );
  const most = Math.max(...all.flatMap(({ numbers }) => numbers));
  const top = [0.5, 1, 2, 2.5, 5, 10]
    .map((step) => step * 10 ** Math.floor(Math.log10(most)))
    .find((high) => high >= most);
  const deepest = Math.max(...depths);
  const x = (layer) => LEFT + (layer / deepest) * (RIGHT - LEFT);
  const y = (value) => LOW - (value / top) * (LOW - TOP);
  const ticks = [0, 1, 2, 3, 4, 5].map((fifth) => Number(((fifth * top) / 5).toPrecision(2)));
  root.append(
    ...heights(y, ...ticks),
    ...depths.map((d) => label(d, x(d - 0.5), LOW + 15, { "font-size": 11 })),
  );
  const names = Object.keys(rows);
  const inks = Object.fromEntries(names.map((order, i) => [order, `var(--aa-${"hn"[i]})`]));
  const lines = all.map(({ order, at, numbers }) => {
    const points = numbers.map((value, i) => `${x(i + 0.5)} ${y(value)}`).join("L");
    const line = svg("path", {
      d: `M${points}`,
      fill: "none",
      stroke: inks[order],
      "stroke-dasharray": DASHES.at(at - depths.length),
    });
    root.append(line);
    return { order, at, line };
  });
  for (const order of names) {
    const end = rows[order].at(-1).at(-1);
    root.append(label(order, RIGHT, y(end) - 8, { "text-anchor": "end", fill: inks[order] }));
  }
  return {
    root,
    show(now) {
      for (const { order, at, line } of lines) {
        const chosen = order === now.order && at === now.at;
        line.setAttribute("stroke-width", chosen ? 4 : 1);
        line.dataset.chosen = chosen;
        if (chosen) root.append(line); // on top
      }
      show(
        `${name} by layer`,
        `${name} by layer, ${now.order}: ${rows[now.order][now.at].map((v) => v.toPrecision(3)).join(", ")}.`,
      );
    },
  };
}
