// Bars to guess: the reader says of each, in turn, whether it is longer than the first, and then sees it.
//
// rows: of each what was counted, and the count; the first is open
// of: what a count can be at most; chance: what a coin has
import { button, element, readout, svg } from "./host/figure.js";

const [WIDE, ROW, BAR] = [352, 46, 20];
const FOOT = 4;

/** Count how many of the guesses are right: whether a row's count is more than the first's. */
export const right = (rows, guesses) =>
  guesses.filter((more, i) => rows[i + 1][1] > rows[0][1] === more).length;

export default {
  render({ model, el }) {
    const { rows, of, chance } = model.get("data");
    let guesses = []; // whether each count, from the second, was said to be more
    const root = svg("svg", {
      ...{ viewBox: `0 0 ${WIDE} ${ROW * rows.length + FOOT}`, role: "img", class: "aa-look" },
      ...{ fill: "currentColor", "font-size": 12 },
    });
    root.style.maxWidth = `${1.5 * WIDE}px`;
    const said = readout();
    const say = (more) => {
      guesses.push(more);
      show();
      if (guesses.length === rows.length - 1) again.focus();
    };
    const more = button(`more than ${rows[0][1]}`, () => say(true));
    const less = button(`${rows[0][1]} or fewer`, () => say(false));
    const again = button("again", () => {
      guesses = [];
      show();
      more.focus();
    });
    const show = () => {
      const next = guesses.length + 1;
      const done = next === rows.length;
      root.replaceChildren(...rows.flatMap((row, i) => drawn(row, i, i < next, i === next, of)));
      const x = (WIDE * chance) / of;
      const d = rows.map((_, i) => `M${x} ${ROW * i + 22}v${BAR}`).join("");
      root.append(svg("path", { d, stroke: "var(--aa-b)", "stroke-dasharray": "4 3" }));
      const told = rows.slice(0, next).map(([what, count]) => `${what}: ${count} of ${of}`);
      root.setAttribute("aria-label", `${told.join("; ")}.`);
      for (const each of [more, less]) each.disabled = done;
      again.style.visibility = guesses.length ? "visible" : "hidden";
      el.toggleAttribute("data-covered", !done); // what it gives away stays blurred, see book.css
      const [what, count] = rows[guesses.length];
      const found = guesses.length ? `${count}, you said ${words(guesses.at(-1))}` : count;
      const end = `Right: ${right(rows, guesses)} of ${guesses.length}.`;
      said.textContent = `${what}: ${found}. ${done ? end : `Next: ${rows[next][0]}?`}`;
    };
    const words = (is) => (is ? more : less).textContent;
    el.append(root, element("div", { class: "aa-controls" }, more, less, again), said);
    show();
  },
};

function drawn([what, count], i, open, next, of) {
  const [y, wide] = [ROW * i + 22, (WIDE * count) / of];
  const ink = `var(--aa-${i ? "n" : "h"})`;
  const label = { x: 0, y: y - 6, "font-weight": next ? "bold" : "normal" };
  const look = open
    ? { width: wide, fill: ink, "fill-opacity": i ? 0.5 : 0.75 }
    : { width: WIDE - 2, fill: "none", stroke: ink, "stroke-dasharray": "2 4" };
  const end = { x: open ? wide - 6 : WIDE / 4, y: y + 14, "font-weight": "bold" };
  const parts = [
    svg("text", label, what),
    svg("rect", { x: open ? 0 : 1, y, height: BAR, ...look }),
    svg("text", { ...end, "text-anchor": open ? "end" : "middle" }, open ? count : next ? "?" : ""),
  ];
  return parts;
}
