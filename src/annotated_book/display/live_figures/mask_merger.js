// The mask merger: press a word to make it padding, and see what both masks leave to each query.
//
// words: of each sentence
// scores: for each sentence rows of scores, a row per query
// padding: for each sentence which keys are padding
//
// The weights are those of attention.py, and a test compares them. Turned round, they are those of
// PyTorch's function when it is given what is blocked: to a row that sees nothing it gives zeros.
import { button, element, readout } from "./host/figure.js";

function weigh(scores, blocked) {
  const powers = scores.map((score, j) => (blocked[j] ? 0 : Math.exp(score)));
  const sum = powers.reduce((a, b) => a + b, 0);
  return powers.map((power) => power / sum); // NaN if all are blocked
}

/** Write a weight with two digits, as the other figures do. */
export const digits = (weight) =>
  weight ? (weight < 0.995 ? weight.toFixed(2).slice(1) : weight.toFixed(1)) : String(weight);

const UPSIDE_DOWN =
  "Nothing complains. Each word sees what is blocked, and what it should see is hidden (–).";

const list = (rows) => `${rows.length > 1 ? "rows" : "row"} ${rows.join(", ")}`;

export default {
  render({ model, el }) {
    const { words, scores, padding } = model.get("data");
    let [stairs, turned, padded] = [true, false, []];
    const said = readout();
    const tables = words.map((sentence, s) =>
      draw(`sentence ${s + 1}`, sentence, (j) => {
        padded[s][j] = !padded[s][j];
        show();
      }),
    );
    const toggle = button("staircase", () => ((stairs = !stairs), show()));
    const forget = button("forget the ~", () => ((turned = !turned), show()));
    const show = () => {
      const empty = tables.map((table, s) => table.show(scores[s], padded[s], stairs, turned));
      const where = empty.flatMap((rows, s) =>
        rows.length ? `sentence ${s + 1}, ${list(rows)}` : [],
      );
      toggle.setAttribute("aria-pressed", stairs);
      forget.setAttribute("aria-pressed", turned);
      if (turned) said.textContent = UPSIDE_DOWN;
      else
        said.textContent = where.length
          ? `Sees nothing: ${where.join("; ")}.`
          : "Every row sees something.";
    };
    const begin = () => {
      [stairs, turned, padded] = [true, false, padding.map((row) => [...row])];
      show();
    };
    el.append(
      element("div", { class: "aa-endings" }, toggle, forget, button("Start again", begin)),
      element("div", { class: "aa-covers" }, ...tables.map(({ root }) => root)),
      said,
    );
    begin();
  },
};

// One sentence: its keys are buttons, each above its column; a row for each query.
function draw(caption, words, press) {
  const tokens = words.map((word, j) => {
    const token = button(word, () => press(j));
    token.setAttribute("aria-label", `${word}, key ${j + 1} of ${caption}, is padding`);
    return token;
  });
  const cells = words.map(() => words.map(() => element("td")));
  const rows = words.map((word, i) =>
    element("tr", {}, element("th", { scope: "row" }, word), ...cells[i]),
  );
  const heads = tokens.map((token) => element("th", { scope: "col" }, token));
  const root = element(
    "table",
    { class: "aa-cover" },
    element("caption", {}, caption),
    element("thead", {}, element("tr", {}, element("td"), ...heads)),
    element("tbody", {}, ...rows),
  );
  /** Draw the weights, and give which rows see nothing, counted from 1. */
  const show = (scores, padded, stairs, turned) => {
    tokens.forEach((token, j) => token.setAttribute("aria-pressed", padded[j]));
    const empty = scores.map((row, i) => {
      let reasons = row.map((_, j) => (padded[j] ? "p" : "") + (stairs && j > i ? "f" : ""));
      if (turned) reasons = reasons.map((reason) => (reason ? "" : "–"));
      const weights = weigh(row, reasons);
      const none = reasons.every(Boolean);
      rows[i].classList.toggle("aa-empty", none);
      cells[i].forEach((cell, j) => {
        cell.textContent = none ? (turned ? "0" : "NaN") : reasons[j] || digits(weights[j]);
        cell.classList.toggle("aa-blocked", Boolean(reasons[j]));
        cell.style.setProperty("--weight", weights[j] || 0);
      });
      return none ? i + 1 : 0;
    });
    return empty.filter(Boolean);
  };
  return { root, show };
}
