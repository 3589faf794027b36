// A head set by hand: the reader presses the cells of its matrices, and sees what becomes of every sentence.
//
// parts: of each matrix its letter, what a word does by it, and its ink; features: the names of its rows
// columns: the names of the columns of W_Q and W_K
// settings: of each a name, and its matrices; where the figure begins comes first
// sentences: of each its name, its words, their middles and rows, and whether the answer is yes; the first stands
//   alone until its answer is right
// query: the place of the word that asks; won: what is said when all answers are right
//
// A test compares what `ask` finds with Python's.
import { button, element, readout } from "./host/figure.js";
import { drawCurves } from "./collects.js";

const LONGEST = 2; // what the longest bar shows, if nobody hands over more

const times = (row, matrix) =>
  matrix[0].map((_, j) => row.reduce((sum, x, i) => sum + x * matrix[i][j], 0));
const dot = (a, b) => a.reduce((sum, x, i) => sum + x * b[i], 0);

/** Let the word at place `who` ask all words; yes: it collects more than by looking at all alike. */
export function ask([w_q, w_k, w_v], rows, who) {
  const query = times(rows[who], w_q);
  const scores = rows.map((row) => dot(query, times(row, w_k)));
  const powers = scores.map((score) => Math.exp(score / Math.sqrt(query.length)));
  const whole = powers.reduce((sum, power) => sum + power);
  const weights = powers.map((power) => power / whole);
  const values = rows.map((row) => times(row, w_v)[0]);
  const sum = dot(weights, values);
  const average = values.reduce((all, value) => all + value) / values.length;
  return { query, scores, weights, values, sum, average, yes: sum > average + 1e-9 };
}

/** Say what holds the head up, if anything does, and how many answers are right, if there are several. */
export function tell({ query, scores, values, average }, answers, won) {
  const alike = scores.every((score) => score === scores[0]);
  const asks = query.some(Boolean)
    ? `The query of “it” is (${query.join(", ")})${alike ? ", and no key answers it" : ""}.`
    : "“It” asks for nothing.";
  const look = alike ? " It looks at all words alike." : "";
  const none = values.some(Boolean)
    ? ` The thin line: ${Number(average.toFixed(3))}.`
    : " Nobody hands anything over.";
  if (answers.length === 1) return `${asks}${look}${none}`;
  const right = answers.filter((answer) => answer.right).length;
  const all = right === answers.length ? ` ${won}` : "";
  const never = answers.some((answer) => answer.yes) ? "" : ": it always says no";
  return `${asks}${look}${none} ${right} of ${answers.length} right${never}.${all}`;
}

export default {
  render({ model, el }) {
    const { parts, features, columns, settings, sentences, query, won } = model.get("data");
    let [now, chosen, alone] = [structuredClone(settings[0][1]), 0, true];
    const said = readout();
    const scene = ({ words, places }, { weights, values }) => ({
      ...{ words, places, gives: values, brings: values },
      shares: weights.map((weight) => Math.round(100 * weight - 1e-9)), // an eighth is 0.12 in tables
    });
    const find = ({ rows }) => ask(now, rows, query);
    const look = drawCurves(scene(sentences[0], find(sentences[0])), query);
    const press = (p, i, j) => {
      now[p][i][j] = (now[p][i][j] + 1) % 3;
      show();
    };
    const matrices = parts.map((part, p) =>
      drawMatrix(part, features, now[p], p < 2 ? columns : [], (i, j) => press(p, i, j)),
    );
    const lines = sentences.map(({ name }, i) => drawLine(name, () => ((chosen = i), show())));
    const presets = settings.map(([name, set]) =>
      button(name, () => ((now = structuredClone(set)), show())),
    );
    const show = () => {
      const answers = sentences.map((each) => {
        const found = find(each);
        return { ...found, right: found.yes === each.yes };
      });
      matrices.forEach(({ show }, p) => show(now[p]));
      const longest = Math.max(LONGEST, ...answers.flatMap(({ values }) => values));
      lines.forEach(({ show }, i) => show(answers[i], longest, i === chosen));
      look.show(scene(sentences[chosen], answers[chosen]));
      const more = alone && answers[0].right;
      if (more) reveal();
      const news = more ? `Right! Here are ${lines.length - 1} more sentences. ` : "";
      said.textContent = news + tell(answers[chosen], alone ? answers.slice(0, 1) : answers, won);
    };
    const each = element("div", { class: "aa-answers" }, lines[0].root);
    const reveal = () => {
      alone = false;
      each.append(...lines.slice(1).map(({ root }) => root));
      each.after(element("div", { class: "aa-controls aa-endings" }, "set to", ...presets));
    };
    const names = ["a word with", ...features].map((name) => element("span", {}, name));
    const rows = element("div", { class: "aa-features" }, ...names);
    const grids = element("div", { class: "aa-press" }, rows, ...matrices.map(({ root }) => root));
    el.append(
      element("div", { class: "aa-collects" }, grids, look.root),
      element("div", { class: "aa-question" }, "Is “it” an animal?"),
      each,
      said,
    );
    show();
  },
};

function drawMatrix([letter, role, ink], features, matrix, columns, press) {
  const cells = matrix.map((row, i) =>
    row.map((_, j) => {
      const made = button("", () => press(i, j));
      made.style.setProperty("--ink", `var(--aa-${ink})`);
      return made;
    }),
  );
  const name = element("b", {}, "W", element("sub", {}, letter));
  const names = matrix[0].map((_, j) => element("span", {}, columns[j] ?? "\u00a0"));
  const style = `--columns: ${matrix[0].length}`;
  const grid = element("div", { style }, ...names, ...cells.flat());
  const root = element("div", {}, element("div", {}, name, element("span", {}, role)), grid);
  const show = (now) =>
    cells.forEach((row, i) =>
      row.forEach((made, j) => {
        made.textContent = now[i][j];
        made.classList.toggle("aa-set", now[i][j] > 0);
        const of = [`W_${letter}`, features[i], ...columns.slice(j, j + 1)].join(", ");
        made.setAttribute("aria-label", `${of}: ${now[i][j]}`);
      }),
    );
  return { root, show };
}

function drawLine(name, choose) {
  const [bar, verdict] = [element("i"), element("b")];
  const [scale, root] = [element("span", {}, bar), button(name, choose)];
  root.append(scale, verdict);
  const show = ({ sum, average, yes, right }, longest, chosen) => {
    scale.style.setProperty("--average", `${(100 * average) / longest}%`);
    bar.style.width = `${(100 * sum) / longest}%`;
    verdict.textContent = `${written(sum, average)} ${yes ? "yes" : "no"} ${right ? "✓" : "✗"}`;
    root.classList.toggle("aa-wrong", !right);
    root.setAttribute("aria-pressed", String(chosen));
  };
  return { root, show };
}

// With a third digit where it is near the line.
const written = (sum, average) => sum.toFixed(sum && Math.abs(sum - average) < 0.01 ? 3 : 2);
