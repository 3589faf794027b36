// Rooms: the words of a batch, the walls between them, whom a word can hear, and how each sentence goes on.
//
// choices: of each its name and its options; of the first, each option is a house
// sentences: n words each; a number stands for what is chosen in the choice of this number
// rooms: of each house, the number of the room of each word; word: which listens at first, [sentence, place]
// start: an option of each choice; found: under the options, joined by spaces, how each sentence should go on, then
//   how it does
import { button, element, readout, slider } from "./host/figure.js";

const SIDES = Object.entries({ north: [-1, 0], west: [0, -1], south: [1, 0], east: [0, 1] });

/** Name the sides of a word on which a wall stands. */
export function walls(number, i, j) {
  const open = ([, [down, right]]) => number[i + down]?.[j + right] === number[i][j];
  return SIDES.filter((side) => !open(side)).map(([name]) => name);
}

/** Say whether a word comes no earlier than another of its room, and so can hear it. */
export function hears([i, j], [s, p]) {
  return p < j || (p === j && s <= i);
}

export default {
  render({ model, el }) {
    const { choices, sentences, rooms, word, start, found } = model.get("data");
    const [at, b, n] = [[...start], sentences.length, sentences[0].length];
    let listens = word;
    const house = element("div", { class: "aa-rooms aa-ends", role: "img", style: `--n: ${n}` });
    const said = readout();
    said.classList.add("aa-heard");
    const made = choices.map(([, options], i) =>
      options.map((each, j) => button(each, () => ((at[i] = j), show()))),
    );
    const text = (i, j) => {
      const here = sentences[i][j];
      return typeof here === "number" ? choices[here][1][at[here]] : here;
    };
    const place = (k) => [Math.floor(k / n), k % n];
    const who = slider({
      label: "who listens",
      ...{ max: b * n - 1, value: word[0] * n + word[1] },
      say: (k) => `${text(...place(k))} ${place(k)[0] + 1}`,
      move: (k) => ask(place(k)),
    });
    const ask = (other) => ((listens = other), show());

    function show() {
      const number = rooms[at[0]];
      const all = found[at.join(" ")];
      const heard = [];
      const cell = (i, j) => {
        const lit = number[i][j] === number[listens[0]][listens[1]] && hears(listens, [i, j]);
        if (lit) heard.push(`${text(i, j)} ${i + 1}`);
        const asks = listens[0] === i && listens[1] === j;
        const kinds = [...walls(number, i, j), ...(lit ? ["lit"] : []), ...(asks ? ["asks"] : [])];
        const named = { class: kinds.map((kind) => `aa-${kind}`).join(" ") };
        const drawn = element("i", named, text(i, j));
        drawn.addEventListener("click", () => ask([i, j]));
        return drawn;
      };
      const row = (words, i) => {
        const kind = all[b + i] === all[i] ? "same" : "wrong";
        const end = { class: `aa-${kind}`, style: `--row: ${b + i + 1}`, "data-of": `${i + 1} … ` };
        const cells = words.map((_, j) => cell(i, j));
        return [element("span", {}, i + 1), ...cells, element("em", end, all[b + i])];
      };
      house.replaceChildren(...sentences.flatMap(row));
      who.show(listens[0] * n + listens[1]);
      const goesOn = sentences.map((_, i) => `Sentence ${i + 1} goes on: ${all[b + i]}`).join(" ");
      const [name, sentence] = [text(...listens), listens[0] + 1];
      said.textContent = `“${name}” of sentence ${sentence} hears ${heard.join(", ")}. ${goesOn}`;
      house.setAttribute("aria-label", said.textContent);
      made.forEach((each, i) =>
        each.forEach((one, j) => one.setAttribute("aria-pressed", String(j === at[i]))),
      );
    }

    const line = ([name], i) => {
      const group = { class: "aa-endings", role: "group", "aria-label": name };
      return element("div", {}, element("div", group, name, ...made[i]));
    };
    el.append(...choices.map(line), house, element("div", {}, who.label), said);
    show();
  },
};
