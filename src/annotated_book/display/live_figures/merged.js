// Two ways to merge: of which cells each row is made. A word that is pressed, or pointed at, lights its two cells, and
// frames the row that it gets.
//
// words; query: the word to begin with; merges: of each way its title, and of each row the head and the word of its cells
//
// ``_merged`` of way_through.py draws the same.
import { element, readout, svg } from "./host/figure.js";
import { label } from "./host/panel.js";

const [LEFT, WIDE, HIGH, TOP] = [66, 92, 24, 26];
const INKS = ["var(--aa-h)", "var(--aa-d)"];

export default {
  render({ model, el }) {
    const { words, query, merges } = model.get("data");
    let chosen = query;
    const choose = (word) => show((chosen = word));
    const drawings = merges.map(([title, rows], way) =>
      drawn(words, title, rows, way === 0, choose, (word) => show(word ?? chosen)),
    );
    const said = readout();
    const quoted = (list) => list.map((i) => `“${words[i]}”`).join(" and ");

    function show(word) {
      drawings.forEach((each) => each.show(word, chosen));
      const rows = merges[1][1];
      const own = rows.flatMap((row, i) => row.filter(([, of]) => of === word).map(() => i));
      const [[head]] = rows[word];
      said.textContent = `Without the transpose, the row of “${words[word]}” holds what head ${head + 1} found for ${quoted(rows[word].map(([, of]) => of))}. What was found for “${words[word]}” stands at ${quoted(own)}.`;
    }

    const pictures = drawings.map((each) => each.root);
    el.append(element("div", { class: "aa-pictures aa-merged" }, ...pictures), said);
    show(chosen);
  },
};

function drawn(words, title, rows, keys, choose, point) {
  const box = `0 0 ${LEFT + 2 * WIDE + 2} ${TOP + HIGH * rows.length + 2}`;
  const root = svg("svg", { viewBox: box, role: keys ? "group" : "img", fill: "currentColor" });
  root.append(label(title, LEFT + WIDE, 15, { "font-size": 13, "font-weight": "bold" }));
  const frame = { x: LEFT, width: 2 * WIDE, height: HIGH, fill: "none", "stroke-width": 2.4 };
  const framed = svg("rect", { ...frame, stroke: "currentColor", "pointer-events": "none" });
  // What is pressed and pointed at: a cell, which is of a word, or the name of a row.
  const press = (made, word) => {
    made.classList.add("aa-ask");
    made.addEventListener("mousedown", (event) => event.preventDefault());
    made.addEventListener("click", () => choose(word));
    made.addEventListener("mouseenter", () => point(word));
    made.addEventListener("mouseleave", () => point());
    root.append(made);
    return made;
  };
  const names = words.map((word, i) => {
    const y = TOP + HIGH * i;
    const box = { x: 1, y: y + 1, width: LEFT - 4, height: HIGH - 2, fill: "transparent" };
    const text = label(word, LEFT - 8, y + 17, { "font-size": 13, "text-anchor": "end" });
    const made = press(svg("g", {}, svg("rect", box), text), i);
    if (!keys) return [made, text];
    const stop = { role: "button", tabindex: 0, "aria-label": `follow “${word}”` };
    for (const [name, value] of Object.entries(stop)) made.setAttribute(name, value);
    made.addEventListener("keydown", (event) => {
      if (!["Enter", " "].includes(event.key)) return;
      event.preventDefault();
      choose(i);
    });
    return [made, text];
  });
  const cells = rows.flatMap((row, i) =>
    row.map(([head, of], place) => {
      const [x, y] = [LEFT + WIDE * place, TOP + HIGH * i];
      const box = { x: x + 1, y: y + 1, width: WIDE - 2, height: HIGH - 2, fill: INKS[head] };
      const rect = svg("rect", box);
      const text = label(words[of], x + WIDE / 2, y + 17, { "font-size": 13 });
      const which = label(head + 1, x + 9, y + 16, { "font-size": 10 });
      press(svg("g", {}, rect, text, which), of);
      return [rect, text, of];
    }),
  );
  root.append(framed);
  const show = (word, chosen) => {
    framed.setAttribute("y", TOP + HIGH * word);
    names.forEach(([made, text], i) => {
      text.setAttribute("font-weight", i === word ? "bold" : "normal");
      if (keys) made.setAttribute("aria-pressed", String(i === chosen));
    });
    for (const [rect, text, of] of cells) {
      rect.setAttribute("fill-opacity", of === word ? 0.5 : 0.12);
      text.setAttribute("font-weight", of === word ? "bold" : "normal");
    }
    const made = rows[word].map(([head, of]) => `head ${head + 1} for “${words[of]}”`);
    root.setAttribute("aria-label", `${title}: “${words[word]}” gets ${made.join(" and ")}.`);
  };
  return { root, show };
}
