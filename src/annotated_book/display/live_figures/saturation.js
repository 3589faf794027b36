// Saturation: what the width of a head, and what its scores are divided by, do to the softmax.
//
// products: for each width d, its text first: [d, rows of q · k], a row per query, a column per key
// width, query: where the sliders begin; queries are counted from 0
// edge: the histogram's bins are 1 wide and go from -edge to edge; the middle one is around 0
//
// A test compares every number with what Python makes of the same products.
import { element, readout, slider, svg } from "./host/figure.js";
import { HALO, LEFT, LOW, RIGHT, TOP, heights, label, panel } from "./host/panel.js";

const STEPS = 16; // the slider's way from d^0, which is 1, over √d to d

/** Give what the scores are divided by: a power of the width. */
export const divisor = (d, step) => d ** (step / STEPS);

/** Turn a row of scores into shares of one whole. */
export function softmax(row) {
  const most = Math.max(...row);
  const powers = row.map((score) => Math.exp(score - most));
  const whole = powers.reduce((a, b) => a + b);
  return powers.map((power) => power / whole);
}

/** Give the size of the softmax's derivative: of the matrix of all ∂w_i / ∂s_j = w_i (δ_ij - w_j). */
export function size(weights) {
  let squares = 0;
  weights.forEach((w, i) => weights.forEach((v, j) => (squares += (w * ((i === j) - v)) ** 2)));
  return Math.sqrt(squares);
}

/** Measure scores: their standard deviation, the median query's derivative, the mean largest weight. */
export function measure(scores) {
  const all = scores.flat();
  const mean = all.reduce((a, b) => a + b) / all.length;
  const squares = all.reduce((sum, score) => sum + (score - mean) ** 2, 0);
  const weights = scores.map(softmax);
  const sizes = weights.map(size).sort((a, b) => a - b);
  const largest = weights.map((row) => Math.max(...row));
  return [
    Math.sqrt(squares / (all.length - 1)),
    sizes[(sizes.length - 1) >> 1], // of an even number the lower one, as torch takes it
    largest.reduce((a, b) => a + b) / largest.length,
  ];
}

/** Count the scores in bins 1 wide, from -edge to edge. */
export function histogram(scores, edge) {
  const counts = new Array(2 * edge).fill(0);
  for (const score of scores.flat())
    if (Math.abs(score) <= edge) counts[Math.min(2 * edge - 1, Math.floor(score + edge))] += 1;
  return counts;
}

/** Divide every score. */
export const divide = (scores, by) => scores.map((row) => row.map((score) => score / by));

// The divisor in words: its name, where it has one, and its value.
function named(d, step) {
  const value = Number(divisor(d, step).toPrecision(3));
  return { 0: "1", [STEPS / 2]: `√d = ${value}`, [STEPS]: `d = ${value}` }[step] ?? String(value);
}

export default {
  render({ model, el }) {
    const { products, width, query, edge } = model.get("data");
    const now = { at: products.findIndex(([d]) => d === width), step: STEPS / 2, query };
    const said = readout();
    const lines = [0, 1, 2].map(() => element("span", { style: "display: block" }));
    said.append(...lines);
    const parts = [drawScores(edge), drawWeights(products[0][1][0].length), drawSizes(products)];

    const show = () => {
      const [d, plain] = products[now.at];
      const scores = divide(plain, divisor(d, now.step));
      const [deviation, derivative] = measure(scores);
      const weights = softmax(scores[now.query]);
      const most = Math.max(...weights);
      parts[0].show(plain, scores, deviation);
      parts[1].show(softmax(plain[now.query]), weights, now.query);
      parts[2].show(now);
      lines[0].textContent = `Width ${d}, scores divided by ${named(d, now.step)}: `;
      lines[1].textContent = `they deviate by ${deviation.toFixed(2)}; the derivative is ${derivative.toFixed(3)}. `;
      lines[2].textContent = `Query ${now.query + 1} gives ${most.toFixed(2)} to key ${weights.indexOf(most) + 1}.`;
      marks.forEach((mark, i) => mark.setAttribute("aria-pressed", i * (STEPS / 2) === now.step));
    };
    const by = slider({
      label: "divide by",
      max: STEPS,
      value: now.step,
      say: (step) => named(products[now.at][0], step),
      move: (step) => ((now.step = step), show()),
    });
    const widths = slider({
      label: "width d",
      max: products.length - 1,
      value: now.at,
      say: (at) => String(products[at][0]),
      move: (at) => ((now.at = at), by.show(now.step), show()),
    });
    const asking = slider({
      label: "query",
      max: products[0][1].length - 1,
      value: now.query,
      say: (index) => String(index + 1),
      move: (index) => ((now.query = index), show()),
    });
    const marks = ["1", "√d", "d"].map((name, i) => {
      const mark = element(
        "button",
        { type: "button", class: "aa-mark", "aria-label": `divide by ${name}` },
        name,
      );
      mark.addEventListener(
        "click",
        () => ((now.step = i * (STEPS / 2)), by.show(now.step), show()),
      );
      return mark;
    });
    const knobs = element(
      "div",
      { class: "aa-knobs" },
      widths.label,
      by.label,
      element("div", { class: "aa-marks" }, ...marks),
      asking.label,
      said,
    );
    el.append(element("div", { class: "aa-panels" }, ...parts.map(({ root }) => root), knobs));
    show();
  },
};

const CHOSEN = { fill: "var(--aa-d)", "fill-opacity": 0.6 };
const PLAIN = {
  fill: "none",
  stroke: "var(--aa-h)",
  "stroke-width": 1.5,
  "stroke-dasharray": "4 2",
};

function drawScores(edge) {
  const { root, show } = panel("scores");
  const x = (score) => LEFT + ((score + edge) / (2 * edge)) * (RIGHT - LEFT);
  const [plain, chosen] = [svg("path", PLAIN), svg("path", CHOSEN)];
  for (let at = -20 * Math.floor(edge / 20); at <= edge; at += 20)
    root.append(label(String(at).replace("-", "−"), x(at), LOW + 15, { "font-size": 11 }));
  root.append(chosen, plain);
  const outline = (scores) => {
    const counts = histogram(scores, edge);
    const most = Math.max(...counts, 1);
    const bars = counts.map(
      (count, i) => `V${LOW - (count / most) * (LOW - TOP)}H${x(i + 1 - edge)}`,
    );
    return `M${x(-edge)} ${LOW}${bars.join("")}V${LOW}`;
  };
  return {
    root,
    show(before, after, deviation) {
      plain.setAttribute("d", outline(before));
      chosen.setAttribute("d", outline(after));
      const text = `the scores deviate by ${deviation.toFixed(2)}`;
      show(text, `Histogram: ${text}; not divided, by ${measure(before)[0].toFixed(2)}.`);
    },
  };
}

function drawWeights(m) {
  const { root, show } = panel(`its ${m} keys`);
  const step = (RIGHT - LEFT) / m;
  const y = (weight) => LOW - weight * (LOW - TOP);
  const bars = (look) =>
    Array.from({ length: m }, (_, j) =>
      svg("rect", { ...look, x: LEFT + step * (j + 0.12), width: step * 0.76 }),
    );
  const [plain, chosen] = [bars(PLAIN), bars(CHOSEN)];
  const set = (bar, weight) => {
    bar.setAttribute("y", y(weight));
    bar.setAttribute("height", LOW - y(weight));
    bar.setAttribute("visibility", weight < 0.004 ? "hidden" : "visible"); // not a line at the bottom
  };
  chosen.forEach((_, j) =>
    root.append(label(j + 1, LEFT + step * (j + 0.5), LOW + 15, { "font-size": 10 })),
  );
  root.append(...chosen, ...plain, ...heights(y, 0, 0.5, 1));
  return {
    root,
    show(before, after, query) {
      before.forEach((weight, j) => set(plain[j], weight));
      after.forEach((weight, j) => set(chosen[j], weight));
      const said = after.map((weight, j) => `${weight.toFixed(2)} to key ${j + 1}`).join(", ");
      show(`weights of query ${query + 1}`, `Query ${query + 1} gives ${said}.`);
    },
  };
}

function drawSizes(products) {
  const { root, show } = panel("width d");
  const x = (i) => LEFT + ((i + 0.5) / products.length) * (RIGHT - LEFT);
  const y = (value) => LOW - (value / 0.5) * (LOW - TOP);
  const [plain, chosen] = [
    svg("path", PLAIN),
    svg("path", { fill: "none", stroke: "var(--aa-d)", "stroke-width": 2 }),
  ];
  const dot = svg("circle", { r: 5, fill: "var(--aa-d)" });
  const value = label("", 0, 0, { "font-weight": "bold", style: HALO });
  products.forEach(([d], i) => root.append(label(d, x(i), LOW + 15, { "font-size": 11 })));
  root.append(...heights(y, 0, 0.5), plain, chosen, dot, value);
  const sizes = (step) =>
    products.map(([d, scores]) => measure(divide(scores, divisor(d, step)))[1]);
  const line = (values) => values.map((v, i) => `${i ? "L" : "M"}${x(i)} ${y(v)}`).join("");
  plain.setAttribute("d", line(sizes(0)));
  return {
    root,
    show({ at, step }) {
      const values = sizes(step);
      chosen.setAttribute("d", line(values));
      dot.setAttribute("cx", x(at));
      dot.setAttribute("cy", y(values[at]));
      value.setAttribute("x", x(at));
      value.setAttribute("y", y(values[at]) - 9);
      value.textContent = values[at].toFixed(3);
      const said = products.map(([d], i) => `${values[i].toFixed(3)} at ${d}`).join(", ");
      show("size of the softmax's derivative", `Size of the derivative by width: ${said}.`);
    },
  };
}
