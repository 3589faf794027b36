// Cut: wide keys, uncut or cut and stacked along one of two axes; what is in one frame is compared.
//
// words, who: those of a sentence, and the index of the one that asks
// answers: what it means where the first or second number of its output is larger, by their names
// sheets: under each last word queries, keys and values, a row a word; output: W_O, row by row
// A test compares the numbers with those of PyTorch's tensors.
import { button, element, readout, svg } from "./host/figure.js";
import { label } from "./host/panel.js";

const range = (count) => Array.from({ length: count }, (_, i) => i);
const sum = (all) => all.reduce((total, x) => total + x, 0);

/** Attend with one word; way 0 cuts nothing, 1 stacks heads first, and 2 stacks words first. */
export function attend([queries, keys, values], output, way, who) {
  const width = queries[who].length / (way ? 2 : 1);
  const pieces = (row) => (way ? [row.slice(0, width), row.slice(width)] : [row]);
  const found = pieces(queries[who]).map((query, head) => {
    const own = (sheet) => (way === 2 ? pieces(sheet[who]) : sheet.map((row) => pieces(row)[head]));
    const sums = own(keys).map((key) => sum(key.map((x, i) => query[i] * x)));
    const powers = sums.map((score) => Math.exp(score / Math.sqrt(width)));
    const weights = powers.map((power) => power / sum(powers));
    const mixed = query.map((_, i) => sum(own(values).map((value, j) => weights[j] * value[i])));
    return { sums, weights, mixed };
  });
  const merged = found.flatMap(({ mixed }) => mixed);
  return { found, gets: output[0].map((_, j) => sum(merged.map((x, i) => x * output[i][j]))) };
}

const [LEFT, WIDE, PITCH, TOP, APART, RIGHT, WIDTH] = [62, 30, 25, 66, 14, 212, 356];
const WAYS = ["uncut", "cut, dim=0", "cut, dim=1"];
const AXES = ["(n, h · d)", "(h, n, d)", "(n, h, d)"];
const COLOURS = ["var(--aa-h)", "var(--aa-d)"]; // of what is cut
const BOLD = { "font-weight": "bold" };

const cell = (text, x, y, [width, height], fill, strong, more) => [
  svg("rect", { x, y, width, height, fill, "fill-opacity": strong, stroke: "#808080" }),
  label(text, x + width / 2, y + height / 2 + 4.5, more),
];
const name = (text, y, more) => label(text, LEFT - 8, y, { "text-anchor": "end", ...more });
const frame = (x, y, width, height, strong) =>
  svg("rect", {
    ...{ x: x - 3, y: y - 2, width: width + 6, height: height + 4, fill: "none", rx: 2 },
    ...{ stroke: "currentColor", "stroke-width": strong },
  });

export default {
  render({ model, el }) {
    const { words, who, answers, sheets, output } = model.get("data");
    const [endings, features] = [Object.keys(sheets), Object.keys(answers)];
    const [half, low] = [output.length / 2, TOP + PITCH * words.length];
    const box = { viewBox: `0 0 ${WIDTH} ${low + 40}`, role: "img", class: "aa-cut" };
    const root = svg("svg", { ...box, fill: "currentColor", "stroke-width": 0.6 });
    const said = readout();
    let [way, last] = [0, endings[0]];

    function show() {
      const { found, gets } = attend(sheets[last], output, way, who);
      const [query, keys] = [sheets[last][0][who], sheets[last][1]];
      const [high, strip] = [way === 2 ? PITCH - 7 : PITCH, WIDE * half];
      const head = (i) => Math.floor(i / half);
      const ink = (g) => (way ? COLOURS[g] : "#808080");
      const at = (i) => LEFT + WIDE * i + (way === 1 ? APART * head(i) : 0);
      const top = (j) => TOP + j * PITCH + (way === 2 ? 3 : 0);
      const row = (each, j) => {
        const heard = way !== 2 || j === who;
        const [sums, weights] = ["sums", "weights"].map((what) =>
          way === 2 ? found[0][what] : found.map((one) => one[what][j]),
        );
        const faint = { opacity: heard ? 1 : 0.6 };
        return [
          name(each, top(j) + high / 2 + 4.5, j === who && BOLD),
          ...keys[j].flatMap((x, i) => {
            const text = heard ? `${query[i]}·${x}` : x;
            return cell(text, at(i), top(j), [WIDE, high], ink(head(i)), 0.16, faint);
          }),
          ...(heard ? sums : []).flatMap((score, g) => {
            const [x, colour] = [RIGHT + 72 * g, ink(g)];
            const share = weights[g].toFixed(2);
            const strong = 0.06 + 0.6 * weights[g];
            return [
              ...cell(score, x, top(j), [26, high], colour, 0.06),
              ...cell(share, x + 28, top(j), [40, high], colour, strong, { class: "aa-share" }),
            ];
          }),
        ];
      };
      const frames = [
        () => [frame(at(0), TOP, 2 * strip, low - TOP, 2)],
        () => [0, half].map((i) => frame(at(i), TOP, strip, low - TOP, 2)),
        () => words.map((_, j) => frame(at(0), top(j), 2 * strip, high, j === who ? 2 : 0.7)),
      ][way]();
      const got = features.map((feature, i) => `${feature} ${gets[i].toFixed(2)}`);
      root.replaceChildren(
        ...(way ? [0, 1] : []).map((g) => label(`head ${g + 1}`, at(g * half) + strip / 2, 14)),
        ...found.flatMap((_, g) => [
          label(way ? `head ${g + 1}` : "uncut", RIGHT + 34 + 72 * g, 14),
          label("sum", RIGHT + 13 + 72 * g, 40),
          label("weight", RIGHT + 48 + 72 * g, 40),
        ]),
        name(`${words[who]} asks`, 40, BOLD),
        ...query.flatMap((x, i) => cell(x, at(i), 24, [WIDE, 24], ink(head(i)), 0.4)),
        ...[...words.slice(0, -1), last].flatMap(row),
        ...frames,
        name(`${words[who]} gets`, low + 28, BOLD),
        ...got.flatMap((text, g) =>
          cell(text, LEFT + 100 * g, low + 12, [96, 24], ink(g), 0.16, BOLD),
        ),
      );
      const same = Math.abs(gets[0] - gets[1]) < 0.005;
      const meant = answers[features[gets[0] > gets[1] ? 0 : 1]];
      const answer = same ? "The same twice: no answer." : `So “${words[who]}” is the ${meant}.`;
      const both = found.map((one) => one.sums.join(" and ")).join(", ");
      const own = way === 2 ? ` The queries of “${words[who]}” score ${both}.` : "";
      said.textContent = `${WAYS[way]}, ${AXES[way]}: ${got.join(", ")}. ${answer}${own}`;
      root.setAttribute("aria-label", `What is compared with “${words[who]}”, ${WAYS[way]}.`);
      [WAYS[way], last].forEach((now, i) =>
        buttons[i].forEach((made) =>
          made.setAttribute("aria-pressed", String(made.textContent === now)),
        ),
      );
    }

    const buttons = [
      WAYS.map((each, i) => button(each, () => ((way = i), show()))),
      endings.map((each) => button(each, () => ((last = each), show()))),
    ];
    const rows = [buttons[0], [`${words[who]} was`, ...buttons[1]]];
    el.append(
      ...rows.map((row) => element("div", {}, element("div", { class: "aa-endings" }, ...row))),
      root,
      said,
    );
    show();
  },
};
