// Strips: rows of signs or words, one set for each choice, with what is right and what is not.
//
// choices: of each its name, its options, and whether they are buttons or a list
// lines: words, and the numbers of the choices that stand among them; start: an option of each choice
// rows: names, each with the row that it should equal, and a row that it may equal instead; or -1
// found: under the options, joined by spaces, the text of each row; split: what lies between its cells
import { button, element, readout, select } from "./host/figure.js";

/** Say of each cell whether it is as it should be ("same"), as it may be instead, or wrong. */
export function marks(cells, right, other) {
  const mark = (cell, i) => (cell === right[i] ? "same" : cell === other?.[i] ? "copied" : "wrong");
  return cells.map((cell, i) => (right ? mark(cell, i) : "plain"));
}

export default {
  render({ model, el }) {
    const { choices, lines, start, rows, found, split } = model.get("data");
    const at = [...start];
    const strips = element("div", { class: "aa-strips", role: "img" });
    const said = readout();
    const made = choices.map(([name, options, kind], i) => {
      const choose = (value) => ((at[i] = value), show());
      if (kind === "buttons") return options.map((each, j) => button(each, () => choose(j)));
      const list = select([...options.entries()], (value) => choose(Number(value)), {
        "aria-label": name,
      });
      list.value = at[i];
      return [list];
    });

    function show() {
      const all = found[at.join(" ")].map((text) => text.split(split));
      const told = [];
      strips.replaceChildren(
        ...rows.map(([name, of, or], i) => {
          const marked = marks(all[i], all[of], all[or]);
          const [same, copied] = ["same", "copied"].map(
            (what) => marked.filter((mark) => mark === what).length,
          );
          const copies = or < 0 ? "" : `, ${copied} copied`;
          if (of >= 0) told.push(`${name}: ${same} of ${all[of].length} right${copies}`);
          const cells = all[i].map((text, j) => element("i", { class: `aa-${marked[j]}` }, text));
          return element("div", {}, element("span", {}, name), ...cells);
        }),
      );
      said.textContent = `${told.join("; ")}.`;
      strips.setAttribute(
        "aria-label",
        rows.map(([name], i) => `${name}: ${all[i].join(split)}`).join("; "),
      );
      made.forEach((each, i) => {
        if (each.length > 1)
          each.forEach((one, j) => one.setAttribute("aria-pressed", String(j === at[i])));
      });
    }

    const line = (parts) => {
      const inside = parts.flatMap((part) => (typeof part === "number" ? made[part] : [part]));
      return element("div", {}, element("div", { class: "aa-endings" }, ...inside));
    };
    el.append(...lines.map(line), strips, said);
    show();
  },
};
