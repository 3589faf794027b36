// A game for two heads: the longer bar answers. The reader says how many will be right, then moves a number in each head.
//
// sides: what the two bars stand for; the slider of each head says how well it finds the other
// sentences: of each its name, its words, which side is right, the scores of both heads where the number is 0 (zero) and
//   where it is 1 (one), and what each word hands over (gives)
// keys: W_K of both heads where the number is 0, which stands in the first column; features: the names of its rows
// unit: the length of a bar of 1. A test compares what `bring` finds with Python's.
import { button, element, readout, slider, svg } from "./host/figure.js";

const [WIDE, HIGH, BAR] = [384, 92, 13]; // of a sentence's drawing, and of a bar in it
const [LEFT, TOP, FULL] = [4, 58, 210]; // where bars begin, and how wide the longest is
const [LETTER, LOOK, LINE] = [8.1, 16, 31]; // how wide a letter is, how high all attention, and its foot

/** Give how much a head looks at each word, and what it brings home. */
export function bring(zero, one, gives, number) {
  const powers = zero.map((score, i) => Math.exp(score + number * (one[i] - score)));
  const whole = powers.reduce((sum, power) => sum + power);
  const looks = powers.map((power) => power / whole);
  return [looks, looks.reduce((sum, look, i) => sum + look * gives[i], 0)];
}

export default {
  render({ model, el }) {
    const { sides, sentences, unit, keys, features } = model.get("data");
    const now = { guess: null, numbers: [0, 0] };
    const said = readout();
    const drawn = sentences.map(draw);
    const show = () => {
      const open = now.guess !== null;
      const rows = sentences.map(({ zero, one, gives, answer }) => {
        const heads = zero.map((each, i) => bring(each, one[i], gives, now.numbers[i]));
        const [a, b] = heads.map(([, brings]) => brings);
        const says = Math.abs(a - b) < 1e-6 ? null : Number(b > a);
        const verdict = says === null ? "a draw" : `${sides[says]} ${says === answer ? "✓" : "✗"}`;
        return { looks: heads.map(([looks]) => looks), brings: [a, b], says, verdict, answer };
      });
      rows.forEach((row, i) => drawn[i].show(open ? row : null, unit));
      const wrong = rows.flatMap((row, i) => (row.says === row.answer ? [] : [sentences[i].name]));
      const draws = rows.every(({ says }) => says === null);
      const all = draws ? "All draws: the heads look alike." : `Not right: ${wrong.join("; ")}.`;
      guesses.forEach((each, i) => {
        each.setAttribute("aria-pressed", String(now.guess === i + 3));
        each.disabled = open;
      });
      sliders.forEach((each, i) => {
        each.style.visibility = open ? "visible" : "hidden";
        matrices[i].show(written(now.numbers[i]));
      });
      said.textContent = open
        ? `You said ${now.guess}. Right: ${6 - wrong.length} of 6. ${wrong.length ? all : "All six!"}`
        : "How many of the six will be right?";
    };
    const guesses = [3, 4, 5, 6].map((each) => button(each, () => ((now.guess = each), show())));
    const sliders = sides.map((_, i) => {
      const move = (value) => ((now.numbers[i] = value), show());
      return slider({
        label: `${sides[1 - i]} in head ${i + 1}`,
        min: -2,
        max: 2,
        step: 0.5,
        value: 0,
        say: written,
        move,
      }).label;
    });
    const matrices = keys.map((w_k, i) => drawKeys(w_k, features, sides[1 - i], i));
    const grids = matrices.map(({ root }) => root);
    const knobs = element("div", { class: "aa-knobs" }, ...grids, ...sliders);
    const ask = element("div", { class: "aa-controls aa-endings" }, "right will be", ...guesses);
    const board = element("div", { class: "aa-score" }, ...drawn.map(({ root }) => root));
    el.append(board, ask, knobs, said);
    show();
  },
};

const written = (value) => value.toFixed(1).replace("-", "−");

function drawKeys(w_k, features, moved, head) {
  const cell = element("b", { style: `color: var(--aa-${"hd"[head]})` });
  const rows = w_k.map((row, i) => {
    const numbers = row.map((number, j) => (j || features[i] !== moved ? number : cell));
    const cells = numbers.map((number) => element("td", {}, number));
    return element("tr", {}, element("th", { scope: "row" }, features[i]), ...cells);
  });
  const name = element("caption", {}, "W", element("sub", {}, "K"), ` of head ${head + 1}`);
  const show = (number) => (cell.textContent = number);
  return { root: element("table", { class: "aa-found" }, name, ...rows), show };
}

function draw({ name, words }) {
  let x = LEFT;
  const looks = words.map((word) => {
    const wide = LETTER * word.length;
    const text = svg("text", { x, y: LINE, class: "aa-fixed" }, word);
    const both = ["h", "d"].map((letter) =>
      svg("rect", { x, width: wide, fill: `var(--aa-${letter})`, "fill-opacity": 0.5 }),
    );
    x += wide + LETTER;
    return { text, both };
  });
  const bars = ["h", "d"].map((letter, i) => {
    const ink = `var(--aa-${letter})`;
    const look = { fill: ink, stroke: ink, "fill-opacity": 0.4 };
    return svg("rect", { x: LEFT, y: TOP + (BAR + 3) * i, height: BAR, width: 0, ...look });
  });
  const numbers = bars.map((_, i) => svg("text", { y: TOP + (BAR + 3) * i + 11, "font-size": 12 }));
  const verdict = svg("text", { x: LEFT + FULL + 50, y: TOP + 20, "font-weight": "bold" });
  const view = { viewBox: `0 0 ${WIDE} ${HIGH}`, role: "img", fill: "currentColor" };
  const root = svg("svg", { ...view, "font-size": 14 }, ...bars, ...numbers, verdict);
  root.append(...looks.flatMap(({ text, both }) => [text, ...both]));
  const show = (row, unit) => {
    bars.forEach((bar, i) => {
      const wide = row ? unit * row.brings[i] : 0;
      bar.setAttribute("visibility", row ? "visible" : "hidden");
      bar.style.width = `${wide}px`;
      numbers[i].textContent = row ? row.brings[i].toFixed(2) : "";
      numbers[i].setAttribute("x", LEFT + 6 + wide);
    });
    looks.forEach(({ both: [over, under] }, i) => {
      const [high, low] = row ? row.looks.map((look) => LOOK * look[i]) : [0, 0];
      over.style.cssText = `y: ${LINE - 12 - high}px; height: ${high}px`;
      under.style.cssText = `y: ${LINE + 5}px; height: ${low}px`;
    });
    verdict.textContent = row ? row.verdict : "";
    const told = row ? `: ${numbers.map((each) => each.textContent).join(" and ")}, ` : "";
    root.setAttribute("aria-label", `${name}${told}${verdict.textContent}`);
  };
  return { root, show };
}
