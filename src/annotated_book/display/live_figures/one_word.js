// One word in a few sentences: press a sentence, and see what the word looks at in two heads, and which of two nouns
// it prefers.
//
// heads: their names, the first drawn above the words
// sentences: names, words and the middle of each; asks: the place of the word that looks; nouns: the places of the
// noun that is meant and of the other; weights: of each head, what the word gives to each, in hundredths
//
// The geometry is that of one_word.py, which draws the same.
import { button, element, readout, svg } from "./host/figure.js";

const [WIDTH, HIGH, LEAST] = [356, 156, 5];
const SIDES = [
  { ink: "var(--aa-h)", y: 56, way: -1, line: 12, share: 67 },
  { ink: "var(--aa-d)", y: 97, way: 1, line: HIGH - 3, share: 94 },
];

export default {
  render({ model, el }) {
    const { heads, sentences } = model.get("data");
    const view = { class: "aa-look", viewBox: `0 0 ${WIDTH} ${HIGH}`, role: "img" };
    const root = svg("svg", { ...view, fill: "currentColor", "font-size": 12 });
    root.setAttribute("text-anchor", "middle");
    root.style.maxWidth = `${1.5 * WIDTH}px`;
    const said = readout();
    const choices = sentences.map((sentence, i) => button(sentence.name, () => show(i)));
    const left = new Set(sentences); // not seen yet: till then, what they give away stays blurred, see book.css
    const show = (chosen) => {
      const sentence = sentences[chosen];
      left.delete(sentence);
      el.toggleAttribute("data-covered", left.size > 0);
      choices.forEach((choice, i) => choice.setAttribute("aria-pressed", String(i === chosen)));
      root.replaceChildren(...SIDES.flatMap((_, i) => drawHead(sentence, heads[i], i)));
      root.append(...drawWords(sentence));
      const text = heads.map((head, i) => `${head}: ${told(sentence, i)}`).join(". ");
      const { words, asks } = sentence;
      said.textContent = `What “${words[asks]}” gives. ${text}.`;
      root.setAttribute("aria-label", `“${words.join(" ")}”. ${said.textContent}`);
    };
    el.append(element("div", { class: "aa-controls aa-endings" }, ...choices), root, said);
    show(0);
  },
};

const two = (share) => (share / 100).toFixed(2);

function prefers({ nouns: [meant, other], weights }, head) {
  const right = weights[head][meant] > weights[head][other];
  return [right ? meant : other, right];
}

function told(sentence, head) {
  const { words, nouns, weights } = sentence;
  const shares = nouns.map((j) => `${words[j]} ${two(weights[head][j])}`);
  const [noun, right] = prefers(sentence, head);
  return `${shares.join(", ")}; prefers ${words[noun]}, ${right ? "" : "not "}the one meant`;
}

function drawHead(sentence, head, i) {
  const { words, places, asks, weights } = sentence;
  const { ink, y, way, line, share: under } = SIDES[i];
  const from = places[asks];
  const parts = places.flatMap((x, j) => {
    const share = weights[i][j];
    if (j === asks || share < LEAST) return [];
    const top = y + way * 2.6 * Math.sqrt(Math.abs(x - from));
    const d = `M${from} ${y}C${from} ${top} ${x} ${top} ${x} ${y}`;
    const look = { fill: "none", stroke: ink, "stroke-opacity": 0.85 };
    return [
      svg("path", { d, ...look, "stroke-width": 0.4 + 0.09 * share }),
      svg("text", { x, y: under, fill: ink }, two(share)),
    ];
  });
  const [noun, right] = prefers(sentence, i);
  const end = { x: WIDTH - 2, y: line, "text-anchor": "end", "font-weight": "bold", fill: ink };
  const verdict = `of the two, ${words[noun]} ${right ? "✓" : "✗"}`;
  const start = { x: 2, y: line, "text-anchor": "start", fill: ink };
  return [...parts, svg("text", start, head), svg("text", end, verdict)];
}

function drawWords({ words, places, asks, nouns }) {
  return words.map((word, j) => {
    const bold = j === asks || nouns.includes(j) ? "bold" : "normal";
    return svg("text", { x: places[j], y: 80, "font-weight": bold }, word);
  });
}
