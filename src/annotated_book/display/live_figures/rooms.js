// Rooms: the words of a batch, the walls between them, whom a word can hear, and how each sentence goes on.
//
// choices: of each its name and its options; the first, or the first few, choose a house
// sentences: n words each; a number stands for what is chosen in the choice of this number
// rooms: under the options of a house, joined by spaces, the number of the room of each word
// word: which listens at first, [sentence, place]; start: an option of each choice
// found: under all options, how each sentence should go on, then how it does
// rows: none, or for each option of the first choice [expression, order]: all words in a row, cut into the rooms
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

/** Say what a cut does, from the rooms of each sentence's words. */
export function verdict(number) {
  const [one, two] = number.map((rooms) => new Set(rooms));
  const all = new Set(number.flat()).size;
  const both = one.size + two.size - all;
  if (both)
    return `${both} of ${all} room${all > 1 ? "s" : ""} mix${both > 1 ? "" : "es"} the two sentences.`;
  return one.size > 1
    ? `each sentence is cut into ${one.size} pieces.`
    : "a room for each sentence.";
}

export default {
  render({ model, el }) {
    const { choices, sentences, rooms, word, start, found, rows } = model.get("data");
    const [at, b, n] = [[...start], sentences.length, sentences[0].length];
    const depth = Object.keys(rooms)[0].split(" ").length;
    let listens = word;
    const kind = rows.length ? "aa-rooms aa-pieces" : "aa-rooms aa-ends";
    const house = element("div", { class: kind, role: "img", style: `--n: ${n}` });
    const said = readout();
    if (!rows.length) said.classList.add("aa-heard");
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
      const number = rooms[at.slice(0, depth).join(" ")];
      const all = found[at.join(" ")];
      const [expression, order] = rows[at[0]] ?? [];
      const rank = ([i, j]) => order.indexOf(i * n + j);
      const heard = [];
      const cell = (i, j) => {
        const before = order ? rank([i, j]) <= rank(listens) : hears(listens, [i, j]);
        const lit = number[i][j] === number[listens[0]][listens[1]] && before;
        if (lit) heard.push(`${text(i, j)} ${i + 1}`);
        const asks = listens[0] === i && listens[1] === j;
        const sides = order ? [] : walls(number, i, j);
        const kinds = [...sides, ...(lit ? ["lit"] : []), ...(asks ? ["asks"] : [])];
        const named = { class: kinds.map((kind) => `aa-${kind}`).join(" ") };
        const below = order ? [element("b", { class: `aa-of-${i + 1}` }, i + 1)] : [];
        const drawn = element("i", named, text(i, j), ...below);
        drawn.addEventListener("click", () => ask([i, j]));
        return drawn;
      };
      const end = (i) => {
        const kind = all[b + i] === all[i] ? "same" : "wrong";
        const end = { class: `aa-${kind}`, style: `--row: ${b + i + 1}`, "data-of": `${i + 1} … ` };
        return element("em", end, all[b + i]);
      };
      const floor = (words, i) => [
        element("span", {}, i + 1),
        ...words.map((_, j) => cell(i, j)),
        end(i),
      ];
      const pieces = () => {
        const made = new Map();
        for (const [i, j] of order.map(place)) {
          const room = number[i][j];
          if (!made.has(room)) made.set(room, element("div"));
          made.get(room).append(cell(i, j));
        }
        return [...made.values(), ...sentences.map((_, i) => end(i))];
      };
      house.replaceChildren(...(order ? pieces() : sentences.flatMap(floor)));
      who.show(listens[0] * n + listens[1]);
      const goesOn = sentences.map((_, i) => `Sentence ${i + 1} goes on: ${all[b + i]}`).join(" ");
      const [name, sentence] = [text(...listens), listens[0] + 1];
      const listened = `“${name}” of sentence ${sentence} hears ${heard.join(", ")}. ${goesOn}`;
      house.setAttribute("aria-label", listened);
      const size = number.flat().filter((room) => room === number[0][0]).length;
      said.textContent = order
        ? `${expression}.reshape(-1, ${size}, e): ${verdict(number)}`
        : listened;
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
