// Storytellers read aloud, word by word: all have the same weights, each cuts or merges its heads in its own way.
//
// words, edge, longest, shapes, layers: of all, as in storyteller.js; heads: of each
// reshaped: the index of the one that merges by a reshape alone, if any does
// text: what they go on with, {} for its ending; endings: to choose from; names: of the tellers; inks: letters of their colours
import { drawn, likeliest, read, unpack } from "./host/decoder.js";
import { button, calm, element, readout } from "./host/figure.js";

const WEIGHTS = new URL("./storyteller-0.bin", import.meta.url);
const PAUSE = 220; // milliseconds between two words

export default {
  async render({ model, el }) {
    const data = model.get("data");
    const { words, edge, longest, shapes, heads, reshaped, layers } = data;
    const { text, endings, names, inks } = data;
    const answer = await fetch(WEIGHTS);
    if (!answer.ok) throw new Error(`the server says ${answer.status}`);
    const weights = unpack(await answer.arrayBuffer(), shapes);
    const tellers = heads.map((each) => ({ weights, heads: each, layers, means: [] }));
    const told = names.map(() => element("p"));
    const said = readout();
    said.classList.add("aa-heard");
    let [texts, timer] = [[], undefined];

    // A word for each of them, with the same luck; 0 takes the likeliest.
    function one(luck) {
      let more = false;
      texts.forEach((each, i) => {
        if (each.over) return;
        const ids = each.all.map((word) => words.indexOf(word));
        const shares = likeliest(read(tellers[i], ids, [], i === reshaped).logits.at(-1), words, 1);
        const word = drawn(shares, luck);
        each.over = word === edge || each.all.length + 1 === longest;
        if (word !== edge) each.all.push(word);
        more ||= !each.over;
      });
      show();
      if (more) return true;
      clearInterval(timer);
      said.textContent = names
        .map((name, i) => `${name}: ${written(texts[i].all.slice(texts[i].begin))}`)
        .join(" ");
      return false;
    }

    function start(index, atOnce) {
      clearInterval(timer);
      const begin = [edge, ...text.replace("{}", endings[index] ?? "").split(" ")];
      const own = index === endings.length;
      texts = names.map(() => ({ all: own ? [edge] : [...begin], begin: own ? 1 : begin.length }));
      choices.forEach((choice, i) => choice.setAttribute("aria-pressed", String(i === index)));
      said.textContent = "Writing …";
      show();
      const next = () => one(own ? Math.random() : 0);
      if (atOnce || calm()) while (next());
      else timer = setInterval(next, PAUSE);
    }

    function show() {
      told.forEach((line, i) => {
        const { all, begin } = texts[i];
        const given = written(all.slice(1, begin));
        const style = `color: var(--aa-${inks[i]})`;
        const added = element("b", { style }, written(all.slice(begin)));
        line.replaceChildren(given && `${given} `, added);
      });
    }

    const begun = endings.map((name, index) => button(name, () => start(index)));
    const theirs = button("a story of their own", () => start(endings.length));
    const choices = [...begun, theirs];
    el.append(
      element("div", { class: "aa-endings" }, "it was", ...begun, "or", theirs),
      element(
        "div",
        { class: "aa-aloud" },
        ...names.map((name, i) => element("div", {}, element("span", {}, name), told[i])),
      ),
      said,
    );
    start(0, true);
    return () => clearInterval(timer);
  },
};

const written = (words) => words.join(" ").replaceAll(" .", ".");
