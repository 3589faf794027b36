// Cut: a wide query meets wide keys; where the rows are cut decides which products make a score.
//
// query: its numbers; keys: theirs, a row a word; words: of the keys; heads: the numbers to choose
// from; chosen: the one to begin with
// A test compares the scores and weights with those of PyTorch's tensors.
import { button, element, readout, svg } from "./host/figure.js";
import { label } from "./host/panel.js";

const range = (count) => Array.from({ length: count }, (_, i) => i);
const sum = (all) => all.reduce((total, x) => total + x, 0);

/** Score the keys, a row a head: the products of its columns, added up; and weigh them. */
export function attend(query, keys, heads) {
  const width = query.length / heads;
  return range(heads).map((g) => {
    const own = range(width).map((i) => g * width + i);
    const sums = keys.map((key) => sum(own.map((i) => query[i] * key[i])));
    const powers = sums.map((score) => Math.exp(score / Math.sqrt(width)));
    return { sums, weights: powers.map((power) => power / sum(powers)) };
  });
}

const [LEFT, WIDE, HIGH, TOP, SCORE] = [66, 31, 22, 46, 29];
const COLOURS = ["var(--aa-h)", "var(--aa-d)", "var(--aa-n)", "var(--aa-m)"];

export default {
  render({ model, el }) {
    const { query, keys, words, heads, chosen } = model.get("data");
    const edge = LEFT + WIDE * query.length;
    const [width, height] = [edge + 15 + SCORE * query.length, TOP + HIGH * (words.length + 1)];
    const box = { viewBox: `0 0 ${width} ${height}`, role: "img", class: "aa-cut" };
    const root = svg("svg", { ...box, fill: "currentColor" });
    const said = readout();
    const cell = (text, x, y, wide, colour, strong) => [
      svg("rect", {
        ...{ x, y, width: wide, height: HIGH - 3, fill: colour, "fill-opacity": strong },
        ...{ stroke: "#808080", "stroke-width": 0.6 },
      }),
      label(text, x + wide / 2, y + 14),
    ];
    const show = (h) => {
      const each = query.length / h;
      const found = attend(query, keys, h);
      const colour = (i) => COLOURS[Math.floor(i / each)];
      const name = (text, y, more) =>
        label(text, LEFT - 6, y + 14, { "text-anchor": "end", ...more });
      const row = (texts, y, strong) =>
        texts.flatMap((text, i) => cell(text, LEFT + i * WIDE, y, WIDE, colour(i), strong));
      root.replaceChildren(
        label(
          h === 1 ? "one sum for a key" : `${h} sums for a key`,
          edge + 14 + (SCORE * h) / 2,
          14,
        ),
        ...found.map((_, g) =>
          label(each > 1 ? `head ${g + 1}` : g + 1, LEFT + (g + 0.5) * each * WIDE, 14),
        ),
        name("it asks", TOP - HIGH, { "font-weight": "bold" }),
        ...row(query, TOP - HIGH, 0.4),
        ...words.flatMap((word, j) => {
          const y = TOP + 6 + j * HIGH;
          const products = keys[j].map((x, i) => `${query[i]}·${x}`);
          const scores = found.flatMap(({ sums, weights }, g) =>
            cell(sums[j], edge + 14 + g * SCORE, y, SCORE, COLOURS[g], 0.04 + 0.6 * weights[j]),
          );
          return [name(word, y), ...row(products, y, 0.16), ...scores];
        }),
        ...range(h - 1).map((g) =>
          svg("path", {
            d: `M${LEFT + (g + 1) * each * WIDE} ${TOP - HIGH - 6}V${height}`,
            ...{ stroke: "currentColor", "stroke-width": 2, "stroke-dasharray": "5 3" },
          }),
        ),
      );
      const most = found.map(({ weights }, g) => {
        const top = Math.max(...weights).toFixed(2);
        const which = words.filter((_, j) => weights[j].toFixed(2) === top);
        const who = h === 1 ? "" : `head ${g + 1} `;
        return `${who}${which.join(" and ")}, ${top}${which.length > 1 ? " each" : ""}`;
      });
      const cut = h === 1 ? "Uncut" : `Cut into ${h}`;
      said.textContent = `${cut}, sums divided by √${each}. Most weight: ${most.join("; ")}.`;
      root.setAttribute(
        "aria-label",
        `The products of “it” with ${words.length} keys, cut into ${h}.`,
      );
      buttons.forEach((made, i) => made.setAttribute("aria-pressed", String(heads[i] === h)));
    };
    const buttons = heads.map((h) => button(h === 1 ? "1 head" : `${h} heads`, () => show(h)));
    el.append(
      element("div", { class: "aa-endings", role: "group", "aria-label": "heads" }, ...buttons),
      root,
      said,
    );
    show(chosen);
  },
};
