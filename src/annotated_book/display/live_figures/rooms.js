// Rooms: a batch of sentences and their heads, each pair a room; a word hears the words in its own.
//
// sentences: n words each; queries, keys: the numbers of each word, by sentence and place
// heads: how many; titles: of the two layouts; opens: which of them to begin with; word: which asks
// to begin with, [sentence, place]
// A test compares the weights with those of PyTorch's tensors, in every layout.
import { button, readout, element, slider, svg } from "./host/figure.js";
import { label } from "./host/panel.js";

const range = (count) => Array.from({ length: count }, (_, i) => i);

/**
 * Weigh what a word hears in one head of h: [sentence, place, weight] of each word in its room.
 *
 * A room is a sentence (layout 0), or, the batch taken for words, a place of all sentences (1).
 */
export function hear(word, queries, keys, head, h, layout) {
  const [b, n, width] = [keys.length, keys[0].length, keys[0][0].length / h];
  const own = ([i, j], all) => all[i][j].slice(head * width, (head + 1) * width);
  const query = own(word, queries);
  const every = range(n).flatMap((j) => range(b).map((i) => [i, j]));
  const inside = every.filter((other) => other[layout] === word[layout]);
  const powers = inside.map((other) => {
    const score = own(other, keys).reduce((sum, x, axis) => sum + x * query[axis], 0);
    return Math.exp(score / Math.sqrt(width));
  });
  const whole = powers.reduce((sum, power) => sum + power, 0);
  return inside.map(([i, j], at) => [i, j, powers[at] / whole]);
}

const [WIDE, HIGH, TOP, GAP] = [94, 25, 46, 14];
const COLOURS = ["var(--aa-h)", "var(--aa-d)"]; // of the heads

export default {
  render({ model, el }) {
    const { sentences, queries, keys, heads: h, titles, opens, word } = model.get("data");
    const [b, n] = [sentences.length, sentences[0].length];
    const now = { word, layout: opens };
    const said = readout();
    const ask = (word) => {
      now.word = word;
      who.show(word[0] * n + word[1]);
      show();
    };
    const house = drawHouse(sentences, h, ask);
    const show = () => {
      const heard = range(h).map((g) => hear(now.word, queries, keys, g, h, now.layout));
      house.show(now.word, heard, now.layout);
      chosen.forEach((each, i) => each.setAttribute("aria-pressed", String(i === now.layout)));
      const [i, j] = now.word;
      const most = heard.map((all, g) => {
        const most = Math.max(...all.map(([, , weight]) => weight)).toFixed(2);
        const equals = all.filter(([, , weight]) => weight.toFixed(2) === most);
        if (equals.length > 2 && equals.length === all.length)
          return `in head ${g + 1} all ${all.length} alike, ${most}`;
        const named = equals.map(([s, p]) => `“${sentences[s][p]}” of sentence ${s + 1}`);
        return `in head ${g + 1} most ${named.join(" and ")}, ${most}`;
      });
      const rooms = now.layout ? `${n * h} rooms of ${b} words` : `${b * h} rooms of ${n} words`;
      said.textContent = `${rooms}. “${sentences[i][j]}” of sentence ${i + 1} hears ${most.join("; ")}.`;
    };
    const chosen = titles.map((title, i) => button(title, () => ((now.layout = i), show())));
    const who = slider({
      label: "who asks",
      ...{ max: b * n - 1, value: word[0] * n + word[1] },
      say: (at) => `${sentences[Math.floor(at / n)][at % n]} ${Math.floor(at / n) + 1}`,
      move: (at) => ask([Math.floor(at / n), at % n]),
    });
    el.append(
      element("div", { class: "aa-endings", role: "group", "aria-label": "layout" }, ...chosen),
      house.root,
      element("div", { class: "aa-controls" }, who.label),
      said,
    );
    show();
  },
};

function drawHouse(sentences, h, ask) {
  const [b, n] = [sentences.length, sentences[0].length];
  const [width, height] = [h * b * WIDE + (h - 1) * GAP, TOP + n * HIGH + 4];
  const box = `-2 0 ${width + 4} ${height}`;
  const root = svg("svg", { viewBox: box, role: "img", class: "aa-house", fill: "currentColor" });
  const x = (head, sentence) => head * (b * WIDE + GAP) + sentence * WIDE;
  const walls = svg("g", { fill: "none", stroke: "#808080", "stroke-width": 1.2 });
  const cells = range(h).map((g) => {
    root.append(label(`head ${g + 1}`, x(g, 0) + (b * WIDE) / 2, 14, { fill: COLOURS[g % 2] }));
    return sentences.flatMap((words, i) => {
      root.append(label(`sentence ${i + 1}`, x(g, i) + WIDE / 2, 34));
      return words.map((word, j) => {
        const frame = { x: x(g, i) + 3, y: TOP + j * HIGH + 3, width: WIDE - 6, height: HIGH - 6 };
        const shade = svg("rect", { ...frame, rx: 3, stroke: "var(--aa-n)", fill: "var(--aa-m)" });
        const text = label(word, x(g, i) + 20, frame.y + 14, { "text-anchor": "start" });
        const share = label("", x(g, i) + WIDE - 7, frame.y + 14, { "text-anchor": "end" });
        const cell = svg("g", { class: "aa-ask" }, shade, text, share);
        cell.addEventListener("click", () => ask([i, j]));
        root.append(cell);
        return { shade, text, share };
      });
    });
  });
  root.append(walls);
  const show = ([asks, place], heard, layout) => {
    const across = (g) => range(n).map((j) => [x(g, 0), TOP + j * HIGH + 1, b * WIDE, HIGH - 2]);
    const columns = (g) => range(b).map((i) => [x(g, i) + 1, TOP, WIDE - 2, n * HIGH]);
    const wall = ([left, top, wide, high]) =>
      svg("path", { d: `M${left} ${top}h${wide}v${high}h${-wide}z` });
    const walled = layout ? across : columns;
    walls.replaceChildren(...range(h).flatMap((g) => walled(g).map(wall)));
    cells.forEach((words, g) => {
      words.forEach(({ shade, text, share }, at) => {
        const word = [Math.floor(at / n), at % n];
        const found = heard[g].find(([i, j]) => i === word[0] && j === word[1]);
        text.setAttribute("opacity", found ? 1 : 0.55);
        share.textContent = found ? found[2].toFixed(2).replace("0.", ".") : "";
        shade.setAttribute("fill-opacity", found ? 0.08 + 0.5 * found[2] : 0);
        shade.setAttribute("stroke-width", at === asks * n + place ? 2 : 0);
      });
    });
    const many = layout ? h * n : h * b;
    root.setAttribute("aria-label", `${many} rooms; those of the word that asks are lit.`);
  };
  return { root, show };
}
