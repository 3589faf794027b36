// Two runs of a model: press a row, and it comes from the twin; what is answered then?
// Or models: press what is done to a head. Where there are several, all can be shown at once.
//
// kinds: of answers, three names
// runs: of each a name; questions, how many; before, words and twin, of one of them, and its answer; shares of the
//   kinds; lines from above: a name, and of each exchange its name, the answer and the shares; no answer: both are alike.
//   Without words, joined is what stands between the names of a line and of what is pressed in it.
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
    const all = button("show all", () => drawn.forEach((each) => each.reveal()));

    function choose(i) {
      choices.forEach((each, j) => each.setAttribute("aria-pressed", String(i === j)));
      board.replaceChildren(...drawn[i].lines);
      board.classList.toggle("aa-silenced", !runs[i].words.length);
      all.hidden = runs[i].words.length || runs[i].lines.length < 3;
      show(runs[i], drawn[i].last());
    }

    function show(run, pressed) {
      const shares = pressed ? pressed.shares : run.shares;
      const each = kinds.map((kind, i) => `${kind} ${shares[i].toFixed(2)}`).join(", ");
      const what = pressed?.what ?? (run.words.length ? "Nothing exchanged yet" : "Untouched");
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
    const shown = runs.length > 1 ? [...choices, all] : [all];
    const controls = element("div", { class: "aa-controls aa-endings" }, ...shown);
    choose(0);
    if (runs.length > 1 || !all.hidden) el.append(controls);
    el.append(board, legend, bar, said);
  },
};

/** Draw a question with all that can be exchanged in it, or models with all that can be silenced. */
function draw(run, show) {
  const answer = element("span", { class: "aa-turned" });
  const silenced = !run.words.length;
  let last;
  const cells = new Map(); // and what each reveals
  const press = (cell, exchange) => {
    last = exchange;
    for (const each of cells.keys()) each.setAttribute("aria-pressed", String(each === cell));
    cells.get(cell)();
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
      const part = `The row of “${name}” ${line}`;
      const what = silenced ? line + run.joined + name : `${part} from the twin`;
      const alike = !silenced && !found;
      const exchange = { what, alike, answer: found || run.answer, shares };
      const cell = button("?", () => press(cell, exchange));
      if (silenced) cell.replaceChildren(element("small", {}, name), "?");
      cell.setAttribute("aria-label", silenced ? what : part);
      cell.setAttribute("aria-pressed", "false");
      cells.set(cell, () => {
        const share = alike ? "=" : shares[silenced ? 0 : 1].toFixed(2);
        cell.lastChild.textContent = share;
        cell.style.setProperty("--share", alike ? 0 : shares[1]);
        cell.style.setProperty("--one", `${100 * shares[0]}%`);
        cell.style.setProperty("--two", `${100 * (shares[0] + shares[1])}%`);
      });
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
  const all = silenced ? lines : [text, ...lines, lay("", words)];
  return { lines: all, last: () => last, reveal: () => cells.forEach((each) => each()) };
}

const lay = (name, cells) =>
  element("div", {}, element("span", {}, name), element("div", {}, ...cells));
