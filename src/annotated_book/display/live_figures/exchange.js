// Two runs of a model: press a row or a head, and it comes from the twin; what is answered then?
//
// kinds: of answers, three names
// runs: of each a name; questions, how many; before, words and twin, of one of them, and its answer; shares of the
//   kinds; lines from above: a name, and of each exchange its name, the answer and the shares; no answer: both are alike
import { button, element, readout } from "./host/figure.js";

const COLOURS = ["n", "h", "b"];

export default {
  render({ model, el }) {
    const { kinds, runs } = model.get("data");
    const board = element("div", { class: "aa-exchange" });
    const said = readout();
    const bar = element("div", { class: "aa-shares", "aria-hidden": "true" });
    const parts = COLOURS.map((letter) => element("i", { style: `--colour: var(--aa-${letter})` }));
    bar.append(...parts);
    const drawn = runs.map((each) => draw(each, show));
    const choices = runs.map(({ name }, i) => button(name, () => choose(i)));

    function choose(i) {
      choices.forEach((each, j) => each.setAttribute("aria-pressed", String(i === j)));
      board.replaceChildren(...drawn[i].lines);
      show(runs[i], drawn[i].last());
    }

    function show(run, pressed) {
      const shares = pressed ? pressed.shares : run.shares;
      const each = kinds.map((kind, i) => `${kind} ${shares[i].toFixed(2)}`).join(", ");
      const what = pressed ? `${pressed.what} from the twin` : "Nothing exchanged yet";
      const alike = pressed?.alike ? " (the same in both runs)" : "";
      said.textContent = `${what}${alike}. Of ${run.questions} questions: ${each}.`;
      parts.forEach((part, i) => {
        part.style.flexGrow = shares[i];
        part.textContent = shares[i] > 0.12 ? shares[i].toFixed(2) : "";
      });
    }

    const names = kinds.map((kind, i) =>
      element("span", { style: `--colour: var(--aa-${COLOURS[i]})` }, kind),
    );
    const legend = element("p", { class: "aa-kinds", "aria-hidden": "true" }, ...names);
    if (runs.length > 1) el.append(element("div", { class: "aa-controls aa-endings" }, ...choices));
    el.append(board, legend, bar, said);
    choose(0);
  },
};

/** Draw a question with all that can be exchanged in it. */
function draw(run, show) {
  const answer = element("span", { class: "aa-turned" });
  let last;
  const cells = [];
  const press = (cell, exchange) => {
    last = exchange;
    cells.forEach((each) => each.setAttribute("aria-pressed", String(each === cell)));
    const share = exchange.alike ? "=" : exchange.shares[1].toFixed(2);
    cell.textContent = exchange.head ? `${exchange.head}: ${share}` : share;
    cell.style.setProperty("--share", exchange.alike ? 0 : exchange.shares[1]);
    write(exchange.answer);
    show(run, exchange);
  };
  const write = (now) =>
    answer.replaceChildren(
      ...(now === run.answer
        ? [element("b", {}, now)]
        : [element("s", {}, run.answer), " ", element("em", {}, now)]),
    );
  const lines = run.lines.map(([line, exchanges]) => {
    const row = exchanges.map(([name, found, shares]) => {
      const head = /^\d/.test(name) && name;
      const what = head ? `Head ${name}` : `The row of “${name}” ${line}`;
      const exchange = { what, head, alike: !found, answer: found || run.answer, shares };
      const cell = button(head || "?", () => press(cell, exchange));
      cell.setAttribute("aria-label", what);
      cell.setAttribute("aria-pressed", "false");
      cells.push(cell);
      return cell;
    });
    return lay(line, row);
  });
  const words = run.words.map((word, j) => {
    const other = run.twin[j] === word ? [] : [element("em", {}, run.twin[j])];
    return element("b", {}, word, ...other);
  });
  write(run.answer);
  const text = element("p", {}, `${run.before} ${run.words.join(" ")} `, answer);
  return { lines: [text, ...lines, lay("", words)], last: () => last };
}

const lay = (name, cells) =>
  element("div", {}, element("span", {}, name), element("div", {}, ...cells));
