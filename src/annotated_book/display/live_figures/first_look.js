// The first look: two heads in one sentence. Exchange its last word, choose the word that asks, and leave
// the transpose out of the line that merges the heads.
//
// words: the sentence, with the first of the endings; endings: what can stand last
// places: the middle of each word; query: the word that asks first; asks: what each head asks
// weights: for each ending and head, a row per word, in hundredths
// right, wrong: for each ending and word, what it gets of animal and food, merged with and without the transpose
// merge: whether the line that merges the heads is there
import { button, element, readout, slider, svg } from "./host/figure.js";

const [WIDTH, HEIGHT, LEAST] = [356, 198, 5]; // of the drawing; a smaller share is not written
// Of each head: its colour, the way its curves go, where they end, where its shares and its question stand.
const HEADS = [
  { ink: "var(--aa-h)", way: -1, end: 74, share: 86, asks: 12, name: "animal" },
  { ink: "var(--aa-d)", way: 1, end: 124, share: 118, asks: HEIGHT - 4, name: "food" },
];

export default {
  render({ model, el }) {
    const { words, endings, places, weights, right, wrong, query, asks, merge } = model.get("data");
    const now = { ending: 0, query, transposed: true };
    const text = (index) => (index === words.length - 1 ? endings[now.ending] : words[index]);
    const same = (rows) => String(rows[0][now.query]) === String(rows[1][now.query]);
    const picture = draw(words, places, asks, (index) => ((now.query = index), show()));
    const choices = endings.map((word, index) =>
      button(word === "…" ? "nothing yet" : word, () => ((now.ending = index), show())),
    );
    const asker = slider({
      label: "who asks",
      max: words.length - 1,
      value: query,
      say: text,
      move: (index) => ((now.query = index), show()),
    });
    const tick = element("input", { type: "checkbox", checked: true, autocomplete: "off" });
    tick.addEventListener("change", () => ((now.transposed = tick.checked), show()));
    const cut = element("span", {}, ".transpose(0, 1)");
    const line = element(
      "label",
      { class: "aa-tick-line" },
      tick,
      element("code", {}, "heads", cut, ".reshape(n, h * d)"),
    );
    const bars = HEADS.map(({ name, ink }) => bar(name, ink));
    const said = readout();

    function show() {
      const all = words.map((_, index) => text(index));
      const rows = weights[now.ending].map((head) => head[now.query]);
      const gets = (now.transposed ? right : wrong)[now.ending][now.query];
      choices.forEach((choice, index) =>
        choice.setAttribute("aria-pressed", String(index === now.ending)),
      );
      asker.show(now.query);
      picture.show(all, rows, now.query);
      cut.classList.toggle("aa-left-out", !now.transposed);
      bars.forEach(({ set }, index) => set(gets[index]));
      const scandal = !now.transposed && same(wrong) && !same(right);
      const parts = HEADS.map(({ name }, index) => `${hundredth(gets[index])} of ${name}`);
      said.replaceChildren(
        `“${all[now.query]}” gets ${parts.join(" and ")}. `,
        now.transposed
          ? ""
          : element(
              "strong",
              {},
              `No error. Same shape.${scandal ? " And both sentences now mean the same." : ""}`,
            ),
      );
    }

    el.append(
      picture.root,
      element(
        "div",
        { class: "aa-controls" },
        element("span", { class: "aa-endings" }, "it was", ...choices),
        asker.label,
      ),
      ...(merge ? [line] : []),
      element("div", { class: "aa-bars", "aria-hidden": "true" }, ...bars.map(({ row }) => row)),
      said,
    );
    show();
  },
};

const hundredth = (number) => (number / 100).toFixed(2);

// The sentence once, the curves of the first head above it, those of the second below; the wider, the more it gets.
function draw(words, places, asks, ask) {
  const curves = HEADS.map(({ ink }) => words.map(() => svg("path", { stroke: ink })));
  const names = places.map((x) => svg("text", { x, y: 102 }));
  const shares = HEADS.map(({ ink, share }) =>
    places.map((x) => svg("text", { class: "aa-share", x, y: share, fill: ink })),
  );
  const askers = places.map((x, j) => {
    const left = j ? (places[j - 1] + x) / 2 : 0;
    const end = j + 1 < places.length ? (x + places[j + 1]) / 2 : WIDTH;
    const box = { x: left, y: 0, width: end - left, height: HEIGHT, fill: "transparent" };
    const made = svg("g", { class: "aa-ask" }, svg("rect", box), names[j]);
    made.addEventListener("click", () => ask(j));
    return made;
  });
  const root = svg(
    "svg",
    {
      class: "aa-look",
      viewBox: `0 0 ${WIDTH} ${HEIGHT}`,
      role: "img",
      fill: "currentColor",
      "font-size": 13,
      "text-anchor": "middle",
    },
    svg("g", { fill: "none", "stroke-linecap": "round" }, ...curves.flat()),
    ...shares.flat(),
    ...HEADS.map(({ ink, asks: y }, head) =>
      svg("text", { x: 2, y, "font-size": 12.4, "text-anchor": "start", fill: ink }, asks[head]),
    ),
    ...askers,
  );
  const show = (all, rows, query) => {
    names.forEach((name, j) => {
      name.textContent = all[j];
      name.setAttribute("font-weight", j === query ? "bold" : "normal");
    });
    const said = HEADS.map(({ way, end }, head) => {
      curves[head].forEach((path, j) => {
        path.setAttribute("d", curve(places[query], places[j], end, way));
        path.style.strokeWidth = 0.4 + 0.09 * rows[head][j];
        path.style.strokeOpacity = rows[head][j] < LEAST ? 0.2 : 0.85;
        shares[head][j].textContent = rows[head][j] < LEAST ? "" : hundredth(rows[head][j]);
      });
      return all.map((word, j) => `${word} ${hundredth(rows[head][j])}`).join(", ");
    });
    const label = `The shares of “${all[query]}”, by head 1: ${said[0]}; by head 2: ${said[1]}.`;
    root.setAttribute("aria-label", label);
  };
  return { root, show };
}

// From one word to another, the higher the farther they are; to itself, a small loop.
function curve(a, b, y, way) {
  const far = Math.abs(a - b);
  const [wide, high] = far ? [0, 4.4 * Math.sqrt(far)] : [9, 22];
  const top = y + way * high;
  return `M${a - wide / 3} ${y}C${a - wide} ${top} ${b + wide} ${top} ${b + wide / 3} ${y}`;
}

function bar(name, ink) {
  const [filled, number] = [element("i", { style: `background: ${ink}` }), element("b")];
  const row = element("span", {}, element("span", {}, name), element("span", {}, filled), number);
  const set = (part) => {
    filled.style.width = `${Math.min(part, 100)}%`;
    number.textContent = hundredth(part);
  };
  return { row, set };
}
