// Dots in front: how a model goes on with a text behind some dots, under each of several masks.
//
// begins: the texts; cards: the names of the masks; dots: 0, and other numbers of them
// start: the place in dots where the figure opens
// told: of each text, for each mask, what it says behind each number of dots
import { button, element, readout, slider } from "./host/figure.js";

export default {
  render({ model, el }) {
    const { begins, cards, told, dots, start } = model.get("data");
    const now = { begin: 0, at: start };
    const said = readout();
    said.classList.add("aa-heard");
    const lines = cards.map(() => element("p"));

    const show = () => {
      const alone = told[now.begin][0][0].split(" ");
      const all = told[now.begin].map((card) => card[now.at]);
      const before = `${"· ".repeat(dots[now.at])}${begins[now.begin]}`;
      lines.forEach((line, i) => line.replaceChildren(before, ...marked(all[i].split(" "), alone)));
      chosen.forEach((each, i) => each.setAttribute("aria-pressed", String(i === now.begin)));
      said.textContent = cards.map((card, i) => `${card}: ${all[i]}`).join(" ");
    };
    const chosen = begins.map((begin, i) => button(begin, () => ((now.begin = i), show())));
    const many = slider({
      label: "dots in front",
      ...{ max: dots.length - 1, value: now.at, say: (at) => String(dots[at]) },
      move: (at) => ((now.at = at), show()),
    });
    const named = cards.map((card, i) => element("div", {}, element("span", {}, card), lines[i]));
    el.append(
      element("div", { class: "aa-endings", role: "group", "aria-label": "text" }, ...chosen),
      element("div", { class: "aa-controls" }, many.label),
      element("div", { class: "aa-dots" }, ...named),
      said,
    );
    show();
  },
};

// The words, each with a space before it; those that are not in the other text's place stand out.
function marked(words, others) {
  return words.flatMap((word, i) => [" ", element(word === others[i] ? "b" : "mark", {}, word)]);
}
