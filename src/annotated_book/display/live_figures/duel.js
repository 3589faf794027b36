// A game for two heads: the longer bar answers. The reader guesses, sees both, and then tries repairs on all sentences.
//
// sentences: their texts; sides: what the two bars stand for; question: what is asked
// rounds: of the heads as they are and after each repair a name, and of each sentence the bars' numbers as written
//   (numbers) and as wide (wide), which of the sides is longer (says), whether that is right, and why
import { button, element, readout, svg } from "./host/figure.js";

const [WIDE, HIGH, BAR] = [384, 60, 13]; // of a sentence's drawing, and of a bar in it
const [LEFT, TOP, FULL] = [4, 24, 210]; // where bars begin, and how wide the longest is

export default {
  render({ model, el }) {
    const { sentences, sides, question, rounds } = model.get("data");
    const guesses = sentences.map(() => null);
    const now = { round: 0 };
    const said = readout();
    const seen = (i) => now.round > 0 || guesses[i] !== null;
    const show = (last) => {
      const [name, rows] = rounds[now.round];
      drawn.forEach(({ show }, i) => show(seen(i) ? rows[i] : null, now.round ? null : guesses[i]));
      pressed.forEach((each, i) => each.setAttribute("aria-pressed", String(i === now.round)));
      const open = rows.filter((_, i) => seen(i));
      const score = `right in ${open.filter((row) => row.right).length} of ${open.length}.`;
      const foreseen = rows.filter((row, i) => row.says === guesses[i]).length;
      const row = rows[last];
      const verdict =
        row && `${row.numbers.join(" : ")}, ${row.says}, and that is ${right(row)}. ${row.why} `;
      said.textContent = now.round
        ? `${name}: ${score}`
        : open.length
          ? `${verdict ?? ""}You foresaw ${foreseen} of ${open.length}; the heads are ${score}`
          : `${question} Guess what the heads say; the longer bar counts.`;
    };
    const drawn = sentences.map((sentence, i) => {
      const drawing = draw(sentence);
      const choices = sides.map((side) => {
        const each = button(side, () => {
          if (guesses[i] !== null || now.round) return;
          guesses[i] = side;
          choices.forEach((other) => other.setAttribute("aria-disabled", "true"));
          each.setAttribute("aria-pressed", "true");
          show(i);
        });
        each.setAttribute("aria-label", `${side}: ${sentence}`);
        each.setAttribute("aria-pressed", "false");
        return each;
      });
      const both = element("div", { class: "aa-guess" }, ...choices);
      const root = element("div", { class: "aa-round" }, drawing.root, both);
      return { root, show: drawing.show };
    });
    const pressed = rounds.map(([name], i) => button(name, () => ((now.round = i), show())));
    const repairs = element("div", { class: "aa-controls aa-endings" }, "the heads", ...pressed);
    const board = element("div", { class: "aa-score" }, ...drawn.map(({ root }) => root), repairs);
    el.append(board, said);
    show();
  },
};

const right = (row) => (row.right ? "right" : "wrong");

function draw(sentence) {
  const bars = ["h", "d"].map((letter, i) => {
    const look = {
      fill: `var(--aa-${letter})`,
      stroke: `var(--aa-${letter})`,
      "fill-opacity": 0.4,
    };
    return svg("rect", { x: LEFT, y: TOP + (BAR + 3) * i, height: BAR, width: 0, ...look });
  });
  const numbers = bars.map((_, i) => svg("text", { y: TOP + (BAR + 3) * i + 11, "font-size": 12 }));
  const verdict = svg("text", { x: LEFT + FULL + 50, y: TOP + 19, "font-weight": "bold" });
  const guessed = svg("text", { x: LEFT + FULL + 50, y: 15, "font-size": 12, class: "aa-guessed" });
  const view = { viewBox: `0 0 ${WIDE} ${HIGH}`, role: "img", fill: "currentColor" };
  const texts = [svg("text", { x: LEFT, y: 15 }, sentence), ...numbers, verdict, guessed];
  const root = svg("svg", { ...view, "font-size": 14 }, ...bars, ...texts);
  const show = (row, guess) => {
    bars.forEach((bar, i) => {
      bar.setAttribute("visibility", row ? "visible" : "hidden");
      bar.style.width = `${row ? row.wide[i] : 0}px`;
      numbers[i].textContent = row ? row.numbers[i] : "";
      numbers[i].setAttribute("x", LEFT + 6 + (row ? row.wide[i] : 0));
    });
    verdict.textContent = row ? `${row.says}, ${right(row)}` : "";
    guessed.textContent = guess ? `your guess ${guess === row.says ? "✓" : "✗"}` : "";
    const told = row ? `: ${row.numbers.join(" and ")}, ${verdict.textContent}` : "";
    root.setAttribute("aria-label", `${sentence}${told}`);
  };
  return { root, show };
}
