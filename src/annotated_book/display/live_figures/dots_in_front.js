// Places in front: how a model goes on with a text behind some places, with a switch off or on.
//
// text: what it goes on with; dots: 0, and other numbers of places; start: where in dots it opens
// told: of each thing that the places can hold its name, and what is told behind each number of
//   them, with the switch off, and on; turn: the name of the switch
// answers: whom “it” means, by a word of the story
import { button, element, readout, slider } from "./host/figure.js";

export default {
  render({ model, el }) {
    const { text, told, dots, turn, answers, start } = model.get("data");
    const now = { held: 0, on: false, at: start };
    const alone = told[0][1][0].split(" ");
    const said = readout();
    const line = element("p", { "aria-live": "polite" });
    const title = element("span");

    const show = () => {
      const [held, off, on] = told[now.held];
      const words = (now.on ? on : off)[now.at].split(" ");
      const before = `${held === "zeros" ? "·" : held} `.repeat(dots[now.at]);
      line.replaceChildren(before + text, ...marked(words, alone));
      title.textContent = `${now.on ? "with" : "no"} ${turn}`;
      kinds.forEach((each, i) => each.setAttribute("aria-pressed", String(i === now.held)));
      toggle.setAttribute("aria-pressed", String(now.on));
      const word = Object.keys(answers).find((each) => words.includes(each));
      said.textContent = word ? `“it” is ${answers[word]}.` : "Not a word is left.";
    };
    const kinds = told.map(([held], i) => button(held, () => ((now.held = i), show())));
    const toggle = button(turn, () => ((now.on = !now.on), show()));
    const many = slider({
      label: "places in front",
      ...{ max: dots.length - 1, value: now.at, say: (at) => String(dots[at]) },
      move: (at) => ((now.at = at), show()),
    });
    const switched = element("div", { class: "aa-endings" }, toggle);
    const first = element("p", {}, text, ...marked(alone, alone));
    const choice = { class: "aa-endings", role: "group", "aria-label": "the places hold" };
    const holds = told.length > 1 ? [element("div", choice, "they hold", ...kinds)] : [];
    el.append(
      element("div", { class: "aa-controls" }, many.label, ...holds, switched),
      element(
        "div",
        { class: "aa-dots" },
        element("div", {}, element("span", {}, "alone"), first),
        element("div", {}, title, line),
      ),
      said,
    );
    show();
    el.toggleAttribute("data-covered", true); // what it gives away stays blurred, see book.css
    const uncover = () => el.removeAttribute("data-covered");
    for (const used of ["click", "input"]) el.addEventListener(used, uncover, { once: true });
  },
};

// The words, each with a space before it; those that are not in the other text's place stand out.
function marked(words, others) {
  return words.flatMap((word, i) => [" ", element(word === others[i] ? "b" : "mark", {}, word)]);
}
