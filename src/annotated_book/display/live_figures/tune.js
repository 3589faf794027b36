// The tune of attention: its words, each over the shape that it leaves; hidden, and pressed from memory.
//
// words: in order; of each the word, its shape, the cards that are drawn (how many, wide, high, and
// whether they are heads'), the places of the words that it needs, and why
//
// It takes two orders: scale and mask may trade places.
import { button, element, readout, svg } from "./host/figure.js";

const [WIDE, HIGH] = [58, 44];

/** Find the place that a word may take after those that were played; -1, if it comes too early. */
export const fits = (words, played, word) =>
  words.findIndex(
    (each, i) =>
      each.word === word && !played.includes(i) && each.needs.every((j) => played.includes(j)),
  );

/** Say what a press of a word means: why it comes too early, what comes next, or that all is played. */
export function told(words, played, word) {
  if (fits(words, played, word) < 0) {
    const { why } = words.find((each, i) => each.word === word && !played.includes(i));
    return `Too early: ${why}.`;
  }
  const left = words.length - played.length - 1;
  return left ? `Yes: ${left} to go.` : "That is the tune: masked multi-head attention.";
}

export default {
  render({ model, el }) {
    const { words } = model.get("data");
    const everything = words.map((_, i) => i);
    let [played, mistakes, playing] = [everything, 0, false];
    const done = () => playing && played.length === words.length;
    const said = readout();
    const row = element("ol", { class: "aa-tune", "aria-label": "the tune" });
    const names = [...new Set(words.map(({ word }) => word))].sort();
    const keys = names.map((name) => button(name, () => press(name)));
    const begin = button("play from memory", () => {
      playing = !playing || done();
      [played, mistakes] = [playing ? [] : everything, 0];
      show(playing ? "Press the words in order." : "");
    });
    const press = (name) => {
      const place = fits(words, played, name);
      const text = told(words, played, name);
      if (place < 0) mistakes += 1;
      else played = [...played, place];
      const count = `${mistakes || "No"} mistake${mistakes > 1 ? "s" : ""}`;
      show(done() ? `${text} ${count}.` : text);
    };
    const show = (text) => {
      said.textContent = text || "Eight words, and mask.";
      begin.textContent = done() ? "again" : playing ? "show the words" : "play from memory";
      row.replaceChildren(...everything.map((i) => slot(words[played[i]])));
      keys.forEach((key, i) => {
        const left = words.some((each, j) => each.word === names[i] && !played.includes(j));
        key.style.visibility = playing ? "visible" : "hidden";
        key.disabled = !playing || !left;
      });
    };
    el.append(
      row,
      element("div", { class: "aa-controls" }, begin),
      element("div", { class: "aa-controls aa-keys" }, ...keys),
      said,
    );
    show("");
  },
};

function slot(each) {
  if (!each) return element("li", { class: "aa-empty", "aria-label": "empty" }, "?");
  const drawn = svg("svg", { viewBox: `0 0 ${WIDE} ${HIGH}`, "aria-hidden": "true" });
  const [wide, high] = [each.wide * 50, each.high * 50];
  for (let i = each.cards - 1; i >= 0; i--) {
    const at = {
      x: (WIDE - wide) / 2 + 5 * (i - (each.cards - 1) / 2),
      y: HIGH - 2 - high - 5 * i,
    };
    const ink = each.heads ? "var(--aa-h)" : "var(--aa-n)";
    drawn.append(svg("rect", { ...at, width: wide, height: high, class: "aa-card", stroke: ink }));
    drawn.append(
      svg("rect", { ...at, width: wide, height: high, fill: ink, "fill-opacity": 0.35 }),
    );
  }
  return element("li", {}, element("b", {}, each.word), drawn, element("span", {}, each.shape));
}
