// A game: the reader guesses what a head says of each sentence, sees it, and both are counted.
//
// rows: of each sentence its text, the head's number as written and as wide, what the head says, whether that is right,
//   and why; at, line: where yes begins, and its number; question: what is asked of each; end: said when all are guessed
import { button, element, readout, svg } from "./host/figure.js";

const [WIDE, HIGH, BAR, HEAD] = [384, 58, 20, 18]; // of a sentence's drawing, of the bar in it, and above all
const [LEFT, TOP, FULL] = [4, 26, 230]; // where bars begin, and how wide the longest is

export default {
  render({ model, el }) {
    const { rows, at, line, question, end } = model.get("data");
    const guesses = rows.map(() => null);
    const said = readout();
    const count = (right) => rows.filter((row, i) => guesses[i] && right(row, guesses[i])).length;
    const show = (last) => {
      const done = count(() => true);
      const row = rows[last];
      const foreseen =
        row && (guesses[last] === row.says ? "As you guessed" : "Not as you guessed");
      const verdict =
        row && `${foreseen}: ${row.number}, ${row.says}, and that is ${right(row)}. ${row.why} `;
      said.textContent = done
        ? `${verdict}You foresaw ${count((row, guess) => guess === row.says)} of ${done}; ` +
          `the head is right in ${count((row) => row.right)} of ${done}. ` +
          (done === rows.length ? end : "")
        : `${question} Guess what the head says; beyond ${line} it says yes.`;
    };
    const drawn = rows.map((row, i) => {
      const sentence = draw(row, at);
      const choices = ["yes", "no"].map((name) => {
        const each = button(name, () => {
          if (guesses[i]) return;
          guesses[i] = name;
          choices.forEach((other) => other.setAttribute("aria-disabled", "true"));
          each.setAttribute("aria-pressed", "true");
          sentence.reveal(name);
          show(i);
        });
        each.setAttribute("aria-label", `${name}: ${row.sentence}`);
        each.setAttribute("aria-pressed", "false");
        return each;
      });
      const both = element("div", { class: "aa-guess" }, ...choices);
      return element("div", { class: "aa-round" }, sentence.root, both);
    });
    const head = element("div", { class: "aa-round" }, border(at, line), element("div"));
    el.append(element("div", { class: "aa-score" }, head, ...drawn), said);
    show();
  },
};

const right = (row) => (row.right ? "right" : "wrong");

function border(at, line) {
  const name = (text, x, anchor) => svg("text", { x, y: 12, "text-anchor": anchor }, text);
  return svg(
    "svg",
    {
      viewBox: `0 0 ${WIDE} ${HEAD}`,
      role: "img",
      "aria-label": `Yes begins at ${line}.`,
      "font-size": 13,
      fill: "currentColor",
    },
    name("← no", at - 22, "end"),
    name(line, at, "middle"),
    name("yes →", at + 22, "start"),
  );
}

function draw(row, at) {
  const view = { viewBox: `0 0 ${WIDE} ${HIGH}`, role: "img", fill: "currentColor" };
  const look = { fill: "var(--aa-h)", "fill-opacity": 0.4, stroke: "var(--aa-h)" };
  const bar = svg("rect", {
    x: LEFT,
    y: TOP,
    height: BAR,
    width: 0,
    visibility: "hidden",
    ...look,
  });
  const verdict = svg("text", { x: LEFT + FULL + 12, y: TOP + 15, "font-weight": "bold" });
  const guessed = svg("text", { x: LEFT + FULL + 12, y: 16, "font-size": 12, class: "aa-guessed" });
  const border = { d: `M${at} ${TOP - 5}v${BAR + 10}`, stroke: "currentColor" };
  const root = svg(
    "svg",
    { ...view, "font-size": 14, "aria-label": row.sentence },
    svg("text", { x: LEFT, y: 16 }, row.sentence),
    bar,
    svg("path", { ...border, "stroke-dasharray": "4 3" }),
    verdict,
    guessed,
  );
  const reveal = (guess) => {
    bar.setAttribute("visibility", "visible");
    bar.style.width = `${row.wide}px`;
    verdict.textContent = `${row.number}: ${row.says}, ${right(row)}`;
    guessed.textContent = `your guess: ${guess} ${guess === row.says ? "✓" : "✗"}`;
    root.setAttribute(
      "aria-label",
      `${row.sentence}: ${verdict.textContent}, ${guessed.textContent}`,
    );
  };
  return { root, reveal };
}
