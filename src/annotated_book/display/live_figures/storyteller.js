// The storyteller: give it words of its world, and see what it would say next, and by which heads.
//
// words: its vocabulary, padding first; edge: the word around each story; longest: words in a text
// shapes: of each tensor in the file of weights its name, its rows, its columns (0 for a vector)
// heads, layers: how many
// means: of each layer, of each head, what stands in for a head that is silenced
// texts: names and words of texts to begin with
import { read, softmax, unpack } from "./host/decoder.js";
import { button, calm, element, readout } from "./host/figure.js";

const WEIGHTS = new URL("./storyteller-0.bin", import.meta.url);
const SHOWN = 5; // next words
const PAUSE = 350; // milliseconds, when it writes on

export default {
  async render({ model, el }) {
    const data = model.get("data");
    const weights = await fetchWeights(data, el);
    const teller = { weights, heads: data.heads, layers: data.layers, means: data.means };
    const names = Array.from({ length: data.layers * data.heads }, (_, i) => [
      Math.floor(i / data.heads),
      i % data.heads,
    ]);
    const state = { text: [], ask: 0, silent: new Set(), wrong: false };
    let timer;

    const said = readout();
    const story = element("p");
    const input = element("input", {
      type: "text",
      class: "aa-text",
      autocapitalize: "off",
      autocomplete: "off",
      spellcheck: "false",
    });
    const form = element(
      "form",
      { class: "aa-controls" },
      element("label", {}, "add words ", input),
      element("button", { class: "aa-button" }, "add"),
    );
    form.addEventListener("submit", (event) => {
      event.preventDefault();
      if (add(input.value)) input.value = "";
    });
    const begin = data.texts.map(({ name, text }) => button(name, () => start(text)));
    const back = button("take one back", () => {
      stop();
      state.text.pop();
      show();
    });
    const clear = button("clear", () => {
      state.silent.clear();
      state.wrong = false;
      start("");
    });
    const on = button("write on", () => (timer ? stop() : go()));
    const merge = button("wrong merge", () => {
      state.wrong = !state.wrong;
      show();
    });
    const toggles = names.map(([layer, head], i) =>
      button(`${layer + 1}.${head + 1}`, () => {
        state.silent.has(i) ? state.silent.delete(i) : state.silent.add(i);
        show();
      }),
    );
    toggles.forEach((toggle, i) =>
      toggle.setAttribute(
        "aria-label",
        `silence layer ${names[i][0] + 1}, head ${names[i][1] + 1}`,
      ),
    );
    const columns = element("tr", {}, element("td", {}, "layer.head"));
    columns.append(...toggles.map((toggle) => element("th", { scope: "col" }, toggle)));
    const body = element("tbody");
    const table = element("table", { class: "aa-heads-of" }, element("thead", {}, columns), body);
    const next = element("div", { class: "aa-next" });

    const stop = () => {
      clearInterval(timer);
      timer = undefined;
      on.textContent = "write on";
    };
    const start = (text) => {
      stop();
      state.text = text ? text.split(" ") : [];
      state.ask = state.text.length;
      show();
    };
    const add = (typed) => {
      const { found, problem } = understand(typed, state.text.length, data);
      if (problem) {
        stop();
        said.textContent = problem;
        return false;
      }
      state.text.push(...found);
      state.ask = state.text.length;
      show();
      return true;
    };
    const one = () => {
      const best = likeliest(state.rows.at(-1), data.words, 1)[0][0];
      if (best === data.edge) {
        stop();
        said.textContent = `The story is at its end: ${state.text.join(" ")}`;
        return false;
      }
      if (add(best)) return true;
      stop();
      return false;
    };
    const go = () => {
      if (calm()) while (one());
      else {
        on.textContent = "stop";
        timer = setInterval(one, PAUSE);
      }
    };

    const show = () => {
      state.ask = Math.min(state.ask, state.text.length);
      const ids = [data.edge, ...state.text].map((word) => data.words.indexOf(word));
      const silent = [...state.silent].map((i) => names[i]);
      const result = read(teller, ids, silent, state.wrong);
      state.rows = result.logits;
      story.textContent = state.text.join(" ");
      const asks = [data.edge, ...state.text];
      body.replaceChildren(
        ...asks.map((word, j) => {
          const pick = button(word, () => {
            state.ask = j;
            show();
            body.querySelectorAll("button")[j].focus();
          });
          pick.setAttribute("aria-pressed", j === state.ask);
          const cells = names.map(([layer, head]) => {
            const weight = result.weights[layer][head][state.ask][j];
            const off = state.silent.has(layer * data.heads + head);
            const cell = element("td", {}, off ? "–" : weight === undefined ? "" : two(weight));
            cell.style.setProperty("--weight", off ? 0 : (weight ?? 0));
            return cell;
          });
          return element("tr", {}, element("th", { scope: "row" }, pick), ...cells);
        }),
      );
      const best = likeliest(result.logits[state.ask], data.words, SHOWN);
      const after = asks
        .slice(0, state.ask + 1)
        .slice(-3)
        .join(" ");
      const atEnd = state.ask === state.text.length;
      next.replaceChildren(
        element("p", {}, `after “${after}”`),
        ...best.map(([word, share]) => {
          const bar = element("i");
          bar.style.width = `${100 * share}%`;
          const choice = button(word, () => (word === data.edge ? start("") : add(word)));
          choice.disabled = !atEnd;
          return element(
            "span",
            {},
            choice,
            element("span", {}, bar),
            element("b", {}, two(share)),
          );
        }),
      );
      toggles.forEach((toggle, i) => toggle.setAttribute("aria-pressed", state.silent.has(i)));
      merge.setAttribute("aria-pressed", state.wrong);
      const without = [...state.silent].sort().map((i) => toggles[i].textContent);
      said.textContent =
        `After “${after}”: ${best
          .slice(0, 3)
          .map(([word, share]) => `${word} ${two(share)}`)
          .join(", ")}.` +
        (without.length ? ` Without ${without.join(" and ")}.` : "") +
        (state.wrong ? " With the wrong merge." : "");
    };

    el.append(
      element("div", { class: "aa-controls aa-endings" }, "begin with ", ...begin),
      form,
      element("div", { class: "aa-controls" }, on, back, clear, merge),
      story,
      said,
      element("div", { class: "aa-teller" }, table, next),
    );
    start(data.texts[0].text);
    return stop;
  },
};

const two = (share) => share.toFixed(2);

async function fetchWeights({ shapes }, el) {
  try {
    const answer = await fetch(WEIGHTS);
    if (!answer.ok) throw new Error(`the server says ${answer.status}`);
    return unpack(await answer.arrayBuffer(), shapes);
  } catch (error) {
    // In the place of the figure's stage: the picture under it stays.
    const note = `The model did not arrive (${error.message}). The picture shows one text; load the page again to try more.`;
    el.before(element("p", { class: "aa-stage aa-readout", role: "status" }, note));
    throw error;
  }
}

/** Read what was typed: the words, or what is the matter with them. */
export function understand(typed, length, { words, edge, longest }) {
  const found = typed
    .toLowerCase()
    .replace(/[,;:!?“”"]/g, " ")
    .replace(/\./g, " . ")
    .split(/\s+/)
    .filter(Boolean);
  const strange = found.find((word) => word === edge || words.indexOf(word) < 1);
  if (!found.length) return { found, problem: "Type a word of this world, such as: cat" };
  if (strange !== undefined) {
    const known = words.slice(1).filter((word) => /\w/.test(word));
    return { found, problem: `“${strange}” is no word of this world. It has: ${known.join(", ")}` };
  }
  if (length + found.length >= longest)
    return {
      found,
      problem: `A text here has at most ${longest - 1} words. Take some back first.`,
    };
  return { found, problem: "" };
}

/** Give the likeliest words and their chances. */
export function likeliest(logits, words, count) {
  const shares = softmax(logits).map((share, i) => [words[i], share]);
  return shares.sort((a, b) => b[1] - a[1]).slice(0, count);
}
