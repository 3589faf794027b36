// Landed: heads one after the other in memory, merged into rows; find where the numbers of a word stand.
//
// words, who: those of a sentence, and the index of the one that is sought
// ways: by name, for each row of the result its places in memory, counted in words; the last comes first
import { button, element, readout, svg } from "./host/figure.js";
import { label } from "./host/panel.js";

const [PITCH, LEFT, WIDE, RESULT, TOP, RIGHT] = [19, 26, 70, 146, 24, 360];
const COLOURS = ["var(--aa-h)", "var(--aa-d)"];

/** List the cells of a result that hold what was found for a word, and say of which rows they are. */
export function sought(rows, who) {
  const [n, h] = [rows.length, rows[0].length];
  const cells = rows.flat().flatMap((place, cell) => (place % n === who ? [cell] : []));
  return { cells, rows: [...new Set(cells.map((cell) => Math.floor(cell / h)))] };
}

export default {
  render({ model, el }) {
    const { words, who, ways } = model.get("data");
    const [names, n, word] = [Object.keys(ways), words.length, words[who]];
    const h = ways[names[0]][0].length;
    const now = { way: names.at(-1), open: new Set(), said: "" };
    const [said, low] = [readout(), TOP + PITCH * n * h];
    const box = { viewBox: `0 0 ${RIGHT} ${low + 4}`, role: "group", class: "aa-shelf aa-landed" };
    const root = svg("svg", { ...box, fill: "currentColor" });
    root.setAttribute("aria-label", `In memory and in the result, ${n} words and ${h} heads.`);

    const draw = (x, y, high, stroke) => {
      const frame = { x: x + 1, y, width: WIDE - 2, height: high, rx: 2, stroke };
      const [rect, text] = [svg("rect", frame), label("", x + WIDE / 2, y + high / 2 + 4)];
      return { cell: svg("g", {}, rect, text), rect, text };
    };
    const fill = ({ rect, text }, place) => {
      const mine = place % n === who;
      rect.setAttribute("fill", COLOURS[Math.floor(place / n) % 2]);
      rect.setAttribute("fill-opacity", mine ? 0.5 : 0.14);
      text.textContent = words[place % n];
      text.setAttribute("font-weight", mine ? "bold" : "normal");
    };
    for (let place = 0; place < n * h; place++) {
      const made = draw(LEFT, TOP + PITCH * place, PITCH - 2, "none");
      fill(made, place);
      root.append(made.cell);
    }
    for (let head = 0; head < h; head++) {
      const [x, y] = [LEFT - 10, TOP + PITCH * n * (head + 0.5)];
      const look = { transform: `translate(${x} ${y}) rotate(-90)`, fill: COLOURS[head % 2] };
      root.append(label(`head ${head + 1}`, 0, 0, look));
    }
    const lines = svg("g", { fill: "none" });
    const titles = { "in memory": LEFT + WIDE / 2, "the result": RESULT + (WIDE * h) / 2 };
    root.append(lines, ...Object.entries(titles).map(([text, x]) => label(text, x, 14)));
    const high = PITCH * h - 6;
    const cells = Array.from({ length: n * h }, (_, cell) => {
      const [row, column] = [Math.floor(cell / h), cell % h];
      const made = draw(RESULT + WIDE * column, TOP + PITCH * h * row + 2, high, "#808080");
      for (const [name, value] of Object.entries({ role: "button", tabindex: 0 }))
        made.cell.setAttribute(name, value);
      made.cell.addEventListener("click", () => press(cell));
      made.cell.addEventListener("keydown", (event) => {
        if (event.key !== "Enter" && event.key !== " ") return;
        event.preventDefault();
        press(cell);
      });
      root.append(made.cell);
      return made;
    });
    words.forEach((each, row) => {
      const look = { "text-anchor": "start", "font-weight": row === who ? "bold" : "normal" };
      const y = TOP + PITCH * h * (row + 0.5) + 3;
      root.append(label(each, RESULT + WIDE * h + 6, y, look));
    });

    const target = () => sought(ways[now.way], who);
    const left = () => target().cells.filter((cell) => !now.open.has(cell)).length;
    const told = (cell) => {
      const place = ways[now.way].flat()[cell];
      return `head ${Math.floor(place / n) + 1} has found for “${words[place % n]}”`;
    };
    const end = () => {
      const named = (all) => [...new Set(all)].map((i) => `“${words[i]}”`).join(" and ");
      const rows = target().rows;
      const own = named(ways[now.way][who].map((place) => place % n));
      cells.forEach((_, cell) => now.open.add(cell));
      const there = `What was found for “${word}” stands in the row${rows.length > 1 ? "s" : ""} of ${named(rows)}`;
      return rows.includes(who) ? `${there}.` : `${there}; the row of “${word}” has got ${own}.`;
    };
    const press = (cell) => {
      if (!left()) return;
      now.open.add(cell);
      const here = target().cells.includes(cell) ? "Yes" : "No";
      now.said = `${here}: here stands what ${told(cell)}. `;
      now.said += left() ? `Still to find: ${left()}.` : end();
      show();
    };
    const show = () => {
      const places = ways[now.way].flat();
      lines.replaceChildren();
      cells.forEach((made, cell) => {
        const [place, row] = [places[cell], Math.floor(cell / h)];
        const shown = now.open.has(cell);
        const name = `row ${words[row]}, cell ${(cell % h) + 1}`;
        made.cell.setAttribute("aria-label", shown ? `${name}: ${told(cell)}` : name);
        made.rect.setAttribute("fill", "var(--aa-n)");
        made.rect.setAttribute("fill-opacity", 0.05);
        made.text.textContent = "?";
        if (!shown) return;
        fill(made, place);
        const mine = place % n === who || row === who;
        const y = TOP + PITCH * h * row + 2 + (high * ((cell % h) + 1)) / (h + 1);
        const from = `M${LEFT + WIDE} ${TOP + PITCH * (place + 0.5) - 1}`;
        const look = { stroke: COLOURS[Math.floor(place / n) % 2], "stroke-width": mine ? 2.4 : 1 };
        lines.append(svg("path", { d: `${from}L${RESULT} ${y}`, ...look }));
      });
      marks.forEach((mark, i) => mark.setAttribute("aria-pressed", String(names[i] === now.way)));
      said.textContent = now.said;
    };
    const start = (way) => {
      now.way = way;
      now.open.clear();
      now.said = `Press the ${target().cells.length} cells of the result in which you expect what was found for “${word}”.`;
      show();
    };
    const marks = names.map((way) => button(way, () => start(way)));
    const all = button("show all", () => ((now.said = end()), show()));
    const group = { class: "aa-endings", role: "group", "aria-label": "merge" };
    el.append(element("div", group, ...marks, all), root, said);
    start(now.way);
  },
};
