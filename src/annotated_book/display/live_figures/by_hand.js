// A head set by hand: the reader presses the cells of its matrices, and sees what becomes of every sentence.
//
// parts: of each matrix its letter, what a word does by it, and its ink; features: the names of its rows
// columns: of each matrix the names of its columns; those of W_V are the two sides
// settings: of each a name, and its matrices; where the figure begins comes first
// sentences: of each its name, its words, their middles and rows, and which side is right; the first stands alone until
//   its answer is right
// query: the place of the word that asks; won: what is said when all answers are right
//
// A test compares what `ask` finds with Python's.
import { button, element, readout } from "./host/figure.js";
import { drawCurves } from "./collects.js";

const LONGEST = 1.5; // what the longest bar shows, if nothing collected is more

const times = (row, matrix) =>
  matrix[0].map((_, j) => row.reduce((sum, x, i) => sum + x * matrix[i][j], 0));
const dot = (a, b) => a.reduce((sum, x, i) => sum + x * b[i], 0);

/** Let the word at place `who` ask all words; says: the larger of the two sums that it collects, null for a draw. */
export function ask([w_q, w_k, w_v], rows, who) {
  const query = times(rows[who], w_q);
  const keys = rows.map((row) => times(row, w_k));
  const scores = keys.map((key) => dot(query, key));
  const powers = scores.map((score) => Math.exp(score / Math.sqrt(query.length)));
  const whole = powers.reduce((sum, power) => sum + power);
  const weights = powers.map((power) => power / whole);
  const values = rows.map((row) => times(row, w_v));
  const sums = [0, 1].map((j) => weights.reduce((sum, w, i) => sum + w * values[i][j], 0));
  const says = Math.abs(sums[0] - sums[1]) < 1e-9 ? null : Number(sums[1] > sums[0]);
  return { query, keys, scores, weights, values, sums, says };
}

/** Say whom the word asks for, and how many answers are right, if there are several. */
export function tell({ query, keys, scores }, words, answers, won) {
  const alike = scores.every((score) => score === scores[0]);
  const best = scores.indexOf(Math.max(...scores));
  const fits = `the key of “${words[best]}”, (${keys[best].join(", ")}), fits it best, ${scores[best]}`;
  const asks = query.some(Boolean)
    ? `The query of “it” is (${query.join(", ")}), and ${alike ? "no key answers it" : fits}.`
    : "“It” asks for nothing.";
  const look = alike ? " It looks at all words alike." : "";
  if (answers.length === 1) return `${asks}${look}`;
  const right = answers.filter((answer) => answer.right).length;
  return `${asks}${look} ${right} of ${answers.length} right.${right < answers.length ? "" : ` ${won}`}`;
}

export default {
  render({ model, el }) {
    const { parts, features, columns, settings, sentences, query, won } = model.get("data");
    let [now, chosen, alone] = [structuredClone(settings[0][1]), 0, true];
    const said = readout();
    const scene = ({ words, places }, { weights, values }) => ({
      ...{ words, places, brings: values.map((row) => row.some(Boolean)) },
      shares: weights.map((weight) => Math.round(100 * weight - 1e-9)), // an eighth is 0.12 in tables
    });
    const find = ({ rows }) => ask(now, rows, query);
    const look = drawCurves(scene(sentences[0], find(sentences[0])), query);
    const press = (p, i, j) => {
      now[p][i][j] = (now[p][i][j] + 1) % 3;
      show();
    };
    const matrices = parts.map((part, p) =>
      drawMatrix(part, features, now[p], columns[p], (i, j) => press(p, i, j)),
    );
    const lines = sentences.map(({ name }, i) =>
      drawLine(name, columns[2], () => ((chosen = i), show())),
    );
    const presets = settings.map(([name, set]) =>
      button(name, () => ((now = structuredClone(set)), show())),
    );
    const show = () => {
      const answers = sentences.map((each) => {
        const found = find(each);
        return { ...found, right: found.says === each.answer };
      });
      matrices.forEach(({ show }, p) => show(now[p]));
      const longest = Math.max(LONGEST, ...answers.flatMap(({ sums }) => sums));
      lines.forEach(({ show }, i) => show(answers[i], longest, i === chosen));
      look.show(scene(sentences[chosen], answers[chosen]));
      const more = alone && answers[0].right;
      if (more) reveal();
      const news = more ? `Right! Here are ${lines.length - 1} more sentences. ` : "";
      said.textContent =
        news +
        tell(answers[chosen], sentences[chosen].words, alone ? answers.slice(0, 1) : answers, won);
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
      element("div", { class: "aa-question" }, "Whom does “it” mean?"),
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
  const names = matrix[0].map((_, j) => element("span", {}, columns[j]));
  const style = `--columns: ${matrix[0].length}`;
  const grid = element("div", { style }, ...names, ...cells.flat());
  const root = element("div", {}, element("div", {}, name, element("span", {}, role)), grid);
  const show = (now) =>
    cells.forEach((row, i) =>
      row.forEach((made, j) => {
        made.textContent = now[i][j];
        made.classList.toggle("aa-set", now[i][j] > 0);
        made.setAttribute("aria-label", `W_${letter}, ${features[i]}, ${columns[j]}: ${now[i][j]}`);
      }),
    );
  return { root, show };
}

function drawLine(name, sides, choose) {
  const [verdict, root] = [element("b"), button("", choose)];
  const bars = sides.map(() => element("i"));
  const sums = sides.map(() => element("span"));
  root.append(element("em", {}, name), verdict);
  sides.forEach((side, j) =>
    root.append(element("small", {}, side), element("span", {}, bars[j], sums[j])),
  );
  const show = ({ sums: found, says, right }, longest, chosen) => {
    found.forEach((sum, j) => {
      bars[j].style.width = `${(84 * sum) / longest}%`;
      bars[j].classList.toggle("aa-longer", says === j);
      sums[j].textContent = sum.toFixed(2);
    });
    verdict.textContent = says === null ? "a draw ✗" : `${sides[says]} ${right ? "✓" : "✗"}`;
    root.classList.toggle("aa-wrong", !right);
    root.setAttribute("aria-pressed", String(chosen));
  };
  return { root, show };
}
