// Words that listen to each other round after round: switches, and what is left of their differences.
//
// words: which words; wide: how many numbers a word has; switches: their names, all off at first, at most one of the last
//   two on; stops: after how many rounds one can look
// runs: under which switches are on (a 0 or 1 each), at each stop the numbers (cells: a letter each, m for 0, by their
//   share of the largest), which share of them differs from word to word (apart), and their size
import { button, element, readout, slider, svg } from "./host/figure.js";

const [LEFT, CELL, HIGH, ZERO, STEPS] = [70, 14, 20, "m".charCodeAt(0), 12];

export default {
  render({ model, el }) {
    const { words, wide, switches, stops, runs } = model.get("data");
    const on = switches.map(() => false);
    let at = 0;
    const root = svg("svg", {
      viewBox: `0 0 ${LEFT + CELL * wide} ${HIGH * words.length}`,
      role: "img",
      fill: "currentColor",
    });
    const cells = words.flatMap((word, i) => {
      const middle = {
        x: LEFT - 8,
        y: HIGH * (i + 0.5) + 5,
        "text-anchor": "end",
        "font-size": 15,
      };
      root.append(svg("text", middle, word));
      return Array.from({ length: wide }, (_, j) =>
        svg("rect", { x: LEFT + CELL * j, y: HIGH * i + 0.5, width: CELL, height: HIGH - 1 }),
      );
    });
    root.append(...cells);
    const said = readout();
    const show = () => {
      const { cells: letters, apart, size } = runs[on.map(Number).join("")][at];
      cells.forEach((cell, i) => {
        const share = (letters.charCodeAt(i) - ZERO) / STEPS;
        cell.setAttribute("fill", share < 0 ? "var(--aa-h)" : "var(--aa-n)");
        cell.setAttribute("fill-opacity", 0.9 * Math.abs(share));
      });
      toggles.forEach((toggle, i) => toggle.setAttribute("aria-pressed", on[i]));
      said.textContent =
        `After ${stops[at]} ${stops[at] === 1 ? "round" : "rounds"}: ${apart} of the whole differs from word to word. ` +
        `Size of the numbers: ${size}.`;
      root.setAttribute("aria-label", `The numbers of ${words.length} words. ${said.textContent}`);
    };
    const time = slider({
      label: "rounds",
      max: stops.length - 1,
      say: (value) => `${stops[value]}`,
      move: (value) => ((at = value), show()),
    });
    const press = (i) => {
      on[i] = !on[i];
      const other = 2 * switches.length - 3 - i; // of the last two
      if (on[i] && other < switches.length) on[other] = false;
      show();
    };
    const toggles = switches.map((name, i) => button(name, () => press(i)));
    el.append(
      element("div", { class: "aa-controls" }, time.label),
      element("div", { class: "aa-controls aa-endings" }, ...toggles),
      element("div", { class: "aa-rounds" }, root),
      said,
    );
    show();
  },
};
