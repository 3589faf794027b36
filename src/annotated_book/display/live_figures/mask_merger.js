// The mask merger: pad tokens, draw a mask of pairs, and see the weights that both leave.
//
// words: of each sample
// scores: for each sample rows of scores, a row per query
// padding: for each sample which keys are padding
//
// The weights are those of attention.py, and a test compares them.
import { button, element, readout, select } from "./host/figure.js";

const range = (count) => Array.from({ length: count }, (_, i) => i);
const table = (n, m, cell) => range(n).map((i) => range(m).map((j) => cell(i, j)));

/** Block what lies ahead: key j for query i when j > i. */
export const causal = (n) => table(n, n, (i, j) => j > i);

function softmax(scores) {
  const top = Math.max(...scores);
  const powers = scores.map((score) => Math.exp(score - top)); // NaN if all are -Infinity
  const sum = powers.reduce((a, b) => a + b, 0);
  return powers.map((power) => power / sum);
}

const fill = (number) => (scores, blocked) =>
  softmax(scores.map((score, j) => (blocked[j] ? number : score)));

/** Make a row of scores into weights; they differ where the row is fully masked. */
export const FATES = {
  NaN: fill(-Infinity),
  zeros: (scores, blocked) =>
    blocked.every(Boolean) ? scores.map(() => 0) : FATES.NaN(scores, blocked),
  uniform: fill(-1e9),
};

/** Write a weight with two digits, as the other figures do. */
export const digits = (weight) =>
  weight ? (weight < 0.995 ? weight.toFixed(2).slice(1) : weight.toFixed(1)) : String(weight);

const PROMISES = {
  NaN: "NaN: plain softmax",
  zeros: "zeros: this package",
  uniform: "uniform: -1e9",
};

export default {
  render({ model, el }) {
    const { words, scores, padding } = model.get("data");
    const [b, n] = [words.length, words[0].length];
    let now;

    const said = readout();
    const fate = choice("a fully masked row gets", PROMISES, (name) => {
      now.fate = name;
      show("");
    });
    const pairs = drawPairs(n, (i, j, to) => {
      now.pairs[i][j] = to;
      show(`Query ${i + 1} ${to ? "may not see" : "sees"} key ${j + 1}.`);
    });
    const samples = words.map((sentence, s) =>
      drawSample(s, sentence, (j) => {
        now.padding[s][j] = !now.padding[s][j];
        show(
          `“${sentence[j]}”, key ${j + 1} of sentence ${s + 1}, ${now.padding[s][j] ? "is padding" : "is a word"} now.`,
        );
      }),
    );

    const show = (change) => {
      const empty = [];
      fate.value = now.fate;
      pairs.show(now.pairs);
      samples.forEach((sample, s) => {
        const blocked = now.pairs.map((row) => row.map((cell, j) => cell || now.padding[s][j]));
        const weights = scores[s].map((row, i) => FATES[now.fate](row, blocked[i]));
        sample.show(now.padding[s], now.pairs, blocked, weights);
        blocked.forEach(
          (row, i) =>
            row.every(Boolean) &&
            empty.push(`“${words[s][i]}” (query ${i + 1} of sentence ${s + 1})`),
        );
      });
      said.textContent = `${change} ${say(empty, b * n)}`.trim();
    };
    const begin = (change) => {
      now = {
        padding: padding.map((row) => [...row]),
        pairs: causal(n),
        fate: "NaN",
      };
      show(change);
    };

    el.append(
      legend(),
      element(
        "div",
        { class: "aa-controls aa-masks" },
        pairs.root,
        ...samples.map(({ root }) => root),
      ),
      element(
        "div",
        { class: "aa-controls" },
        fate.label,
        button("Start again", () => begin("As at the start.")),
      ),
      said,
    );
    begin("");
  },
};

// Say how many queries are left without a key: in few words, since their room is always kept free.
function say([first, ...others], all) {
  if (!first) return `All ${all} queries keep at least one key.`;
  const more = others.length ? ` and ${others.length} more` : "";
  return `${all - 1 - others.length} of ${all} queries keep at least one key. Fully masked: ${first}${more}.`;
}

function choice(label, options, move) {
  const made = select(Object.entries(options), move);
  return Object.assign(made, {
    label: element("label", { class: "aa-slider" }, element("span", {}, label), made),
  });
}

// What the marks in the cells mean: above them, where they are looked for.
function legend() {
  const mark = (letter, ...meaning) => element("span", {}, element("b", {}, letter), ...meaning);
  const name = element("code", {}, "attn_mask");
  const number = element("span", {}, "a number is a weight");
  const hint = element("span", {}, "press a word or a cell of the mask to change it");
  return element(
    "p",
    { class: "aa-legend" },
    mark("p", " blocked as padding"),
    mark("a", " blocked by ", name),
    number,
    hint,
  );
}

function grid(name, caption, columns, body) {
  const head = columns.map((text) => element("th", { scope: "col" }, text));
  const top = element("thead", {}, element("tr", {}, element("td"), ...head));
  return element(
    "table",
    { class: name },
    ...(caption ? [element("caption", {}, caption)] : []),
    top,
    body,
  );
}

const rowsOf = (heads, cells) =>
  heads.map((head, i) =>
    element(
      "tr",
      {},
      element("th", { scope: "row" }, head),
      ...cells[i].map((inside) => element("td", {}, ...inside)),
    ),
  );

// The mask of pairs: one stop of the Tab key, arrows from cell to cell; a mouse that is down draws.
function drawPairs(n, set) {
  const cells = table(n, n, (i, j) =>
    element("button", {
      type: "button",
      tabindex: i || j ? -1 : 0,
      "aria-label": `query ${i + 1}, key ${j + 1}`,
    }),
  );
  const flat = cells.flat();
  const at = ({ target }) => flat.indexOf(target);
  const pressed = (place) => flat[place].getAttribute("aria-pressed") === "true";
  const draw = (place, to) => set(Math.floor(place / n), place % n, to);
  let [pointer, ink] = ["", null];
  const listeners = {
    focusin: (event) => flat.forEach((cell) => (cell.tabIndex = cell === event.target ? 0 : -1)),
    keydown(event) {
      const step = { ArrowUp: -n, ArrowDown: n, ArrowLeft: -1, ArrowRight: 1 }[event.key];
      if (!step) return;
      event.preventDefault();
      flat[at(event) + step]?.focus();
    },
    pointerdown(event) {
      [pointer, ink] = [event.pointerType, null];
      if (pointer === "touch" || at(event) < 0 || event.button) return;
      ink = !pressed(at(event));
      draw(at(event), ink);
    },
    pointerover(event) {
      if (!(event.buttons & 1)) ink = null;
      if (ink !== null && at(event) >= 0 && pressed(at(event)) !== ink) draw(at(event), ink);
    },
    click(event) {
      if (at(event) >= 0 && (pointer !== "mouse" || !event.detail))
        draw(at(event), !pressed(at(event))); // the mouse drew when it went down
    },
  };
  const root = grid(
    "aa-pairs",
    "attn_mask: queries ↓, keys →",
    range(n).map((j) => j + 1),
    element(
      "tbody",
      {},
      ...rowsOf(
        range(n).map((i) => i + 1),
        cells.map((row) => row.map((cell) => [cell])),
      ),
    ),
  );
  for (const [name, listener] of Object.entries(listeners)) root.addEventListener(name, listener);
  const show = (pairs) =>
    flat.forEach((cell, place) => {
      const blocked = pairs[Math.floor(place / n)][place % n];
      cell.setAttribute("aria-pressed", blocked);
      cell.textContent = blocked ? "a" : "";
    });
  return { root, show };
}

// One sample: its tokens are buttons; under them, for each query, what is blocked and the weights.
function drawSample(s, words, press) {
  const tokens = words.map((word, j) => {
    const token = button(word, () => press(j));
    token.setAttribute("aria-label", `${word}, key ${j + 1} of sentence ${s + 1}, is padding`);
    return token;
  });
  const cells = table(words.length, words.length, () => [element("small"), element("span")]);
  const rows = rowsOf(words, cells);
  const root = grid("aa-merged", `sentence ${s + 1}`, tokens, element("tbody", {}, ...rows));
  const show = (padding, pairs, blocked, weights) => {
    tokens.forEach((token, j) => token.setAttribute("aria-pressed", padding[j]));
    cells.forEach((row, i) => {
      rows[i].classList.toggle("aa-empty", blocked[i].every(Boolean));
      row.forEach(([mark, number], j) => {
        mark.textContent = (padding[j] ? "p" : "") + (pairs[i][j] ? "a" : "");
        number.textContent = blocked[i][j] && weights[i][j] === 0 ? "" : digits(weights[i][j]);
        number.parentElement.classList.toggle("aa-blocked", blocked[i][j]);
        number.parentElement.style.setProperty("--weight", weights[i][j] || 0);
      });
    });
  };
  return { root, show };
}
