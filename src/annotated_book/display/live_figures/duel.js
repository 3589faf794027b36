// A game for two heads: the longer bar answers. The reader guesses, sees both, and then tries repairs on all sentences.
//
// sentences: their texts; sides: what the two bars stand for; question: what is asked
// rounds: of the heads as they are and after each repair a name, and of each sentence the bars' numbers as written
//   (numbers) and as wide (wide), which of the sides is longer (says), whether that is right, how high each head's look
//   at each of its words stands (looks), and why in words
import { button, element, readout, svg } from "./host/figure.js";

const [WIDE, HIGH, BAR] = [384, 92, 13]; // of a sentence's drawing, and of a bar in it
const [LEFT, TOP, FULL] = [4, 58, 210]; // where bars begin, and how wide the longest is
const [LETTER, LINE] = [8.1, 31]; // how wide a letter of the sentence is, and where it stands

export default {
  render({ model, el }) {
    const { sentences, words, sides, question, rounds } = model.get("data");
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
      const drawing = draw(sentence, words[i]);
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

function draw(sentence, words) {
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
    const look = {
      fill: `var(--aa-${letter})`,
      stroke: `var(--aa-${letter})`,
      "fill-opacity": 0.4,
    };
    return svg("rect", { x: LEFT, y: TOP + (BAR + 3) * i, height: BAR, width: 0, ...look });
  });
  const numbers = bars.map((_, i) => svg("text", { y: TOP + (BAR + 3) * i + 11, "font-size": 12 }));
  const verdict = svg("text", { x: LEFT + FULL + 50, y: TOP + 12, "font-weight": "bold" });
  const guessed = svg("text", {
    x: LEFT + FULL + 50,
    y: TOP + 29,
    "font-size": 12,
    class: "aa-guessed",
  });
  const view = { viewBox: `0 0 ${WIDE} ${HIGH}`, role: "img", fill: "currentColor" };
  const seen = looks.flatMap(({ text, both }) => [text, ...both]);
  const root = svg("svg", { ...view, "font-size": 14 }, ...bars, ...numbers, verdict, guessed);
  root.append(...seen);
  const show = (row, guess) => {
    bars.forEach((bar, i) => {
      bar.setAttribute("visibility", row ? "visible" : "hidden");
      bar.style.width = `${row ? row.wide[i] : 0}px`;
      numbers[i].textContent = row ? row.numbers[i] : "";
      numbers[i].setAttribute("x", LEFT + 6 + (row ? row.wide[i] : 0));
    });
    looks.forEach(({ both: [over, under] }, i) => {
      const [high, low] = row ? row.looks.map((look) => look[i]) : [0, 0];
      over.style.cssText = `y: ${LINE - 12 - high}px; height: ${high}px`;
      under.style.cssText = `y: ${LINE + 5}px; height: ${low}px`;
    });
    verdict.textContent = row ? `${row.says}, ${right(row)}` : "";
    guessed.textContent = guess ? `your guess ${guess === row.says ? "✓" : "✗"}` : "";
    const told = row ? `: ${row.numbers.join(" and ")}, ${verdict.textContent}. ${row.why}` : "";
    root.setAttribute("aria-label", `${sentence}${told}`);
  };
  return { root, show };
}
