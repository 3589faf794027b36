// One query's weights as its head gets wider, its scores divided by √d or not.
//
// widths: of each d its number, and, not divided and divided, the weights in hundredths (weights), the largest (most)
//   and the largest on average over all queries (usual); queries: how many there are
import { button, element, readout, slider, svg } from "./host/figure.js";
import { LEFT, LOW, RIGHT, TOP, heights, panel } from "./host/panel.js";

export default {
  render({ model, el }) {
    const { widths, queries } = model.get("data");
    const now = { at: 0, way: 0 };
    const said = readout();
    const keys = widths[0].weights[0].length;
    const { root, show: title } = panel(`${keys} keys`);
    const step = (RIGHT - LEFT) / keys;
    const y = (weight) => LOW - weight * (LOW - TOP);
    const bars = Array.from({ length: keys }, (_, j) =>
      svg("rect", { x: LEFT + step * (j + 0.12), width: step * 0.76, "fill-opacity": 0.6 }),
    );
    root.append(...bars, ...heights(y, 0, 0.5, 1));
    const show = () => {
      const { d, weights, most, usual } = widths[now.at];
      bars.forEach((bar, j) => {
        const high = y(0) - y(weights[now.way][j] / 100);
        bar.style.y = `${LOW - high}px`;
        bar.style.height = `${high}px`;
        bar.setAttribute("fill", now.way ? "var(--aa-d)" : "var(--aa-h)");
      });
      ways.forEach((each, i) => each.setAttribute("aria-pressed", String(i === now.way)));
      const by = now.way ? `divided by √${d} = ${Math.sqrt(d)}` : "not divided";
      title(
        `width ${d}, ${by}`,
        `Width ${d}, ${by}: the largest of ${keys} weights is ${most[now.way]}.`,
      );
      said.textContent =
        `Width ${d}, scores ${by}: the largest weight of this query is ${most[now.way]}; ` +
        `on average over ${queries} queries, ${usual[now.way]}.`;
    };
    const wide = slider({
      label: "width d",
      max: widths.length - 1,
      say: (at) => String(widths[at].d),
      move: (at) => ((now.at = at), show()),
    });
    const ways = ["not divided", "divided by √d"].map((name, way) =>
      button(name, () => ((now.way = way), show())),
    );
    el.append(
      element("div", { class: "aa-controls" }, wide.label),
      element("div", { class: "aa-controls aa-endings" }, ...ways),
      element("div", { class: "aa-divided" }, root),
      said,
    );
    show();
  },
};
