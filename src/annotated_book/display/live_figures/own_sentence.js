// A sentence of the reader's own: choose two nouns and a pronoun, and see what the pronoun looks at.
//
// frames: kinds of sentences: a name, words in which A, B and P are left open, and what can stand for P
// nouns: what can stand for A and B; head: the name of the head
// rows: for each frame, pair of nouns and pronoun, what it gives to each word, in hundredths; of one noun twice nothing
// start: the first noun, the second noun and the pronoun to begin with
//
// The geometry is that of own_sentence.py and one_word.py, which draw the same.
import { button, element, readout, select, svg } from "./host/figure.js";

const [WIDTH, HIGH, BASE, LEAST] = [356, 100, 70, 5];
const [LETTER, GAP] = [6, 9];
const OPEN = ["A", "B", "P"];
const NAMES = ["first noun", "second noun", "pronoun"];

export default {
  render({ model, el }) {
    const { frames, nouns, rows, start, head } = model.get("data");
    const at = [...start];
    let chosen = 0;
    const view = { class: "aa-look", viewBox: `0 0 ${WIDTH} ${HIGH}`, role: "img" };
    const root = svg("svg", { ...view, fill: "currentColor", "font-size": 12 });
    root.setAttribute("text-anchor", "middle");
    root.style.maxWidth = `${1.5 * WIDTH}px`;
    const said = readout();
    const line = element("div", { class: "aa-controls", style: "gap: 0.4em" });

    const show = () => {
      const [, text, asks] = frames[chosen];
      const row = rows[chosen][at[0] * nouns.length + at[1]][at[2]];
      const put = [nouns[at[0]], nouns[at[1]], asks[at[2]]];
      const words = text.flatMap((word) => (put[OPEN.indexOf(word)] ?? word).split(" "));
      const [from, top] = [text.indexOf("P"), row.indexOf(Math.max(...row))];
      root.replaceChildren(...draw(words, from, top, row, head));
      const gives = `“${words[from]}” looks most at “${words[top]}” (${two(row[top])})`;
      said.textContent = `${head}: ${gives}.`;
      root.setAttribute("aria-label", `“${words.join(" ")}”. ${said.textContent}`);
    };
    // One noun cannot stand in both places: the other place takes what this one had.
    const choose = (place, value) => {
      if (place < 2 && at[1 - place] === value) at[1 - place] = at[place];
      at[place] = value;
      el.removeAttribute("data-covered");
      line.querySelectorAll("select").forEach((list, i) => (list.value = at[i]));
      show();
    };
    const write = () => {
      const [, text, asks] = frames[chosen];
      const parts = text.map((word) => {
        const place = OPEN.indexOf(word);
        if (place < 0) return element("span", {}, word);
        const options = (place < 2 ? nouns : asks).map((name, i) => [i, name]);
        const move = (value) => choose(place, Number(value));
        const list = select(options, move, { "aria-label": NAMES[place] });
        list.value = at[place];
        return list;
      });
      line.replaceChildren(...parts);
    };
    const kinds = frames.map(([name], i) =>
      button(name, () => {
        chosen = i;
        press();
      }),
    );
    const press = () => {
      kinds.forEach((kind, i) => kind.setAttribute("aria-pressed", String(i === chosen)));
      write();
      show();
    };
    if (kinds.length > 1) el.append(element("div", { class: "aa-controls aa-endings" }, ...kinds));
    el.append(line, root, said);
    el.toggleAttribute("data-covered", true); // what it gives away stays blurred, see book.css
    press();
  },
};

const two = (share) => (share / 100).toFixed(2);

function middles(words) {
  const letters = words.join("").length;
  const gap = Math.min((WIDTH - 8 - LETTER * letters) / Math.max(words.length - 1, 1), 2 * GAP);
  let left = 4;
  return words.map((word) => {
    const middle = left + (LETTER * word.length) / 2;
    left += LETTER * word.length + gap;
    return middle;
  });
}

function draw(words, from, top, row, head) {
  const [at, ink] = [middles(words), "var(--aa-h)"];
  const parts = [
    svg("text", { x: 2, y: 12, "text-anchor": "start", fill: ink }, head),
    svg(
      "text",
      { x: WIDTH - 2, y: 12, "text-anchor": "end", "font-weight": "bold", fill: ink },
      `${words[from]} → ${words[top]}`,
    ),
  ];
  words.forEach((word, j) => {
    const [x, share] = [at[j], row[j]];
    const bold = j === from || j === top ? "bold" : "normal";
    parts.push(svg("text", { x, y: 84, "font-weight": bold }, word));
    if (share < LEAST) return;
    const high = BASE - 3 * Math.sqrt(Math.abs(x - at[from]));
    const d = `M${at[from]} ${BASE}C${at[from]} ${high} ${x} ${high} ${x} ${BASE}`;
    const look = { fill: "none", stroke: ink, "stroke-opacity": 0.85 };
    parts.push(svg("path", { d, ...look, "stroke-width": 0.4 + 0.09 * share }));
    parts.push(svg("text", { x, y: 97, fill: ink }, two(share)));
  });
  return parts;
}
