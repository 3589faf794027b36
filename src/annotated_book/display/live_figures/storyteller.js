// The storyteller: give it words of its world, and see what it would say next, and by which heads.
//
// words: its vocabulary, padding first; edge: the word around each story; longest: words in a text
// shapes: of each tensor in a file of weights its name, its rows, its columns (0 for a vector)
// heads, layers: how many
// models: names, and means: of each layer, of each head, what stands in for a head that is silenced
// texts: names and words of texts to begin with
// temperatures: to write at; 0 takes the likeliest word
import { drawn, likeliest, read, unpack } from "./host/decoder.js";
import { button, calm, element, readout, select } from "./host/figure.js";

const WEIGHTS = [
  new URL("./storyteller-0.bin", import.meta.url),
  new URL("./storyteller-4.bin", import.meta.url),
];
const SHOWN = 5; // next words
const PAUSE = 350; // milliseconds, when it writes on

export default {
  async render({ model, el }) {
    const data = model.get("data");
    const tellers = await fetchFirst(data, el);
    const names = tellers[0].means.flatMap((heads, i) => heads.map((_, j) => `${i + 1}.${j + 1}`));
    const silent = new Set();
    // What is read ends with the word that is asked; what stands after it waits to be replaced.
    let [words, asked, opening, over] = [[], 0, [], false];
    let speaks = 0;
    let best, timer; // the next words with their chances

    const begin = data.texts.map(({ name, text }) => button(name, () => start(text)));
    const who = select(
      data.models.map(({ name }, i) => [i, name]),
      change,
      { "aria-label": "model" },
    );
    const toggles = names.map((name, i) => {
      const toggle = button(name, () => {
        silent.delete(i) || silent.add(i);
        show();
      });
      toggle.setAttribute("aria-label", `silence layer ${name.replace(".", ", head ")}`);
      return toggle;
    });
    const told = element("ol", {
      class: "aa-told",
      "aria-label": "text",
      "data-heads": names.join(" "),
    });
    const said = readout();
    const bars = Array.from({ length: SHOWN }, () => {
      const word = button("", () => {
        stop();
        say(word.textContent);
      });
      return element("div", {}, word, element("span", {}, element("i")), element("b"));
    });
    const on = button("write on", () => (timer ? stop() : go()));
    const warmth = select(
      data.temperatures.map((each) => [each, each ? `temperature ${each}` : "the likeliest"]),
      show,
      { "aria-label": "which word comes next" },
    );
    const input = element("input", {
      type: "text",
      class: "aa-typed",
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
      stop();
      const { found, problem } = understand(input.value, asked, data);
      said.textContent = problem;
      if (problem) return;
      input.value = "";
      add(found);
    });

    function start(text) {
      stop();
      input.value = "";
      silent.clear();
      asked = 0;
      add(text.split(" ").filter(Boolean));
      opening = words;
    }

    async function change(chosen) {
      stop();
      try {
        tellers[chosen] ??= await fetchTeller(data, chosen);
      } catch (error) {
        who.value = speaks;
        said.textContent = `That model did not arrive (${error.message}). Choose it again.`;
        return;
      }
      speaks = chosen;
      show();
    }

    function add(found) {
      words = [...words.slice(0, asked), ...found];
      ask(words.length);
    }

    function ask(place) {
      [asked, over] = [place, false];
      show();
    }

    function say(word) {
      const ends = word === data.edge;
      if (!ends && asked + 1 < data.longest) return add([word]);
      stop();
      over = ends;
      said.textContent = ends
        ? `The end, after ${asked} words. “Write on” tells another.`
        : full(data);
    }

    function stop() {
      if (!timer) return;
      clearInterval(timer);
      timer = undefined;
      on.textContent = "write on";
      show();
    }

    function go() {
      if (over) {
        words = opening;
        ask(words.length);
      }
      opening = words.slice(0, asked);
      on.textContent = "stop";
      timer = setInterval(one, PAUSE);
      do one();
      while (timer && calm());
    }

    function one() {
      say(drawn(best, Number(warmth.value) && Math.random()));
    }

    function show() {
      const texts = [data.edge, ...words];
      const ids = texts.slice(0, asked + 1).map((word) => data.words.indexOf(word));
      const off = [...silent].map((i) => names[i].split(".").map((part) => part - 1));
      const result = read(tellers[speaks], ids, off);
      const weights = result.weights.flat().map((rows) => rows[asked]);
      best = likeliest(result.logits.at(-1), data.words, Number(warmth.value));
      while (told.children.length > texts.length) told.lastChild.remove();
      texts.forEach((word, j) => {
        if (j === told.children.length) told.append(tile(j));
        const { firstChild: pick } = told.children[j];
        pick.setAttribute("aria-pressed", j === asked);
        pick.firstChild.textContent = word;
        pick.title = names
          .map((name, i) => `${name}: ${silent.has(i) ? "silent" : two(weights[i][j] ?? 0)}`)
          .join(", ");
        [...pick.lastChild.children].forEach((cell, i) => {
          const weight = silent.has(i) ? 0 : (weights[i][j] ?? 0);
          cell.textContent = silent.has(i) ? "–" : weight < 0.045 ? "" : brief(weight);
          cell.style.setProperty("--weight", weight);
        });
      });
      const { offsetTop, offsetHeight } = told.children[asked];
      told.scrollTop = offsetTop + offsetHeight - told.clientHeight;
      toggles.forEach((toggle, i) => toggle.setAttribute("aria-pressed", silent.has(i)));
      bars.forEach((bar, i) => {
        const [word, share] = best[i];
        bar.children[0].textContent = word;
        bar.children[1].firstChild.style.width = `${100 * share}%`;
        bar.children[2].textContent = two(share);
      });
      const without = [...silent]
        .sort()
        .map((i) => names[i])
        .join(" and ");
      const first = best.slice(0, 3).map(([word, share]) => `${word} ${two(share)}`);
      said.textContent = timer
        ? "Writing …"
        : `After “${texts.slice(Math.max(0, asked - 1), asked + 1).join(" ")}”` +
          `${without && `, without ${without}`}: ${first.join(", ")}.`;
    }

    function tile(j) {
      const cells = element("span", {}, ...names.map(() => element("i")));
      const pick = element("button", { type: "button" }, element("b"), cells);
      pick.addEventListener("click", () => {
        stop();
        ask(j);
      });
      return element("li", {}, pick);
    }

    el.append(
      element(
        "div",
        { class: "aa-teller" },
        element("div", { class: "aa-controls" }, "begin with ", ...begin),
        element("div", { class: "aa-controls" }, "silence ", ...toggles),
        told,
        element("div", { class: "aa-next" }, said, ...bars),
        element("div", { class: "aa-controls" }, on, warmth, who),
        form,
      ),
    );
    start(data.texts[0].text);
    return stop;
  },
};

const two = (share) => share.toFixed(2);
const brief = (share) => two(share).replace(/^0|\.00$/, ""); // .98, and 1

async function fetchTeller({ shapes, heads, layers, models }, which) {
  const answer = await fetch(WEIGHTS[which]);
  if (!answer.ok) throw new Error(`the server says ${answer.status}`);
  return {
    weights: unpack(await answer.arrayBuffer(), shapes),
    heads,
    layers,
    means: models[which].means,
  };
}

async function fetchFirst(data, el) {
  try {
    return [await fetchTeller(data, 0)];
  } catch (error) {
    // In the place of the figure's stage: the picture under it stays.
    const note = `The model did not arrive (${error.message}). The picture shows one text; load the page again to try more.`;
    el.before(element("p", { class: "aa-stage aa-readout", role: "status" }, note));
    throw error;
  }
}

const full = ({ longest }) =>
  `A text here has at most ${longest - 1} words. Press an earlier one to go on from there.`;

/** Read what was typed: the words, or what is the matter with them. */
function understand(typed, length, data) {
  const found = typed
    .toLowerCase()
    .replace(/[,;:!?“”"]/g, " ")
    .replace(/\./g, " . ")
    .split(/\s+/)
    .filter(Boolean);
  const known = data.words.slice(1).filter((word) => word !== data.edge);
  const strange = found.find((word) => !known.includes(word));
  let problem = "";
  if (!found.length) problem = "Type a word of this world, such as: cat";
  else if (strange !== undefined) {
    const near = known.map((word) => [distance(word, strange), word]).sort(([a], [b]) => a - b);
    const three = near.slice(0, 3).map(([, word]) => word);
    problem = `“${strange}” is no word of this world. Near it: ${three.join(", ")}.`;
  } else if (length + found.length >= data.longest) problem = full(data);
  return { found, problem };
}

/** Count the letters to change, put in or leave out to make one word of another. */
function distance(one, other) {
  let row = Array.from({ length: other.length + 1 }, (_, j) => j);
  for (const [i, letter] of [...one].entries()) {
    const next = [i + 1];
    for (let j = 0; j < other.length; j++)
      next.push(Math.min(next[j] + 1, row[j + 1] + 1, row[j] + (letter !== other[j])));
    row = next;
  }
  return row.at(-1);
}
