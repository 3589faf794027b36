// The shelf: the numbers of a tensor where they lie in memory, and the walk along them that a layout takes.
//
// labels: what stands in each place; words: [a word, how many places belong to it] from the left
// layouts: [what makes it, its letters, sizes, strides] each; step: how many are read to begin with
//
// A test compares the walk and its jumps with PyTorch's.
import { button, element, readout, slider, svg } from "./host/figure.js";
import { label } from "./host/panel.js";

const range = (count) => Array.from({ length: count }, (_, i) => i);

/** Give the places in the order in which a layout reads them: the last axis runs fastest. */
export const walk = (sizes, strides) =>
  sizes.reduce(
    (places, size, axis) =>
      places.flatMap((place) => range(size).map((i) => place + i * strides[axis])),
    [0],
  );

/** Give the index of the number that is read after so many others. */
export function index(step, sizes) {
  const found = [];
  for (const size of sizes.toReversed()) {
    found.unshift(step % size);
    step = Math.floor(step / size);
  }
  return found;
}

/** List the steps of a walk that do not lead to the next place. */
export const jumps = (places) =>
  range(places.length - 1).filter((i) => places[i + 1] !== places[i] + 1);

/** Say how often a walk has jumped when so many numbers are read, and how often it will. */
function told(places, step) {
  const [every, now] = [jumps(places).length, jumps(places.slice(0, step)).length];
  return every ? `${now} jump${now === 1 ? "" : "s"} so far, ${every} in all` : "no jumps";
}

const [PLACE, BOARD, HIGH, ROW] = [22, 16, 24, 96]; // sizes, and the places of one board, at most
const UNDER = HIGH + 19; // where a word ends under its places

export default {
  render({ model, el }) {
    const { labels, words, layouts, step } = model.get("data");
    const now = { layout: 0, step };
    const shelf = drawShelf(labels, words, (place) => {
      const [, , sizes, strides] = layouts[now.layout];
      read.show((now.step = walk(sizes, strides).indexOf(place) + 1));
      show();
    });
    const said = readout();
    const owner = words.flatMap(([word, many]) => Array(many).fill(word));
    const show = () => {
      const [made, letters, sizes, strides] = layouts[now.layout];
      const [places, at] = [walk(sizes, strides), index(now.step - 1, sizes)];
      const place = places[now.step - 1];
      const many = told(places, now.step);
      shelf.show(
        places,
        now.step,
        places.length / sizes[0],
        `${made}: ${now.step} of ${places.length} read, ${many}.`,
      );
      chosen.forEach((each, i) => each.setAttribute("aria-pressed", String(i === now.layout)));
      const sum = at.map((i, axis) => `${i}·${strides[axis]}`).join(" + ");
      said.textContent = `(${letters}), strides (${strides.join(", ")}), ${many}. Number ${now.step} of ${places.length} has the index [${at.join(", ")}]: place ${sum} = ${place}, a number of “${owner[place]}”.`;
    };
    const chosen = layouts.map(([made], i) => button(made, () => ((now.layout = i), show())));
    const read = slider({
      label: "read",
      ...{ min: 1, max: labels.length, value: step, say: (i) => `${i} of ${labels.length}` },
      move: (i) => ((now.step = i), show()),
    });
    const group = { class: "aa-endings aa-codes", role: "group", "aria-label": "layout" };
    el.append(
      element("div", group, ...chosen),
      shelf.root,
      element("div", { class: "aa-controls" }, read.label),
      said,
    );
    show();
  },
};

function drawShelf(labels, words, press) {
  const boards = Math.ceil(labels.length / BOARD);
  const box = `-2 0 ${Math.min(labels.length, BOARD) * PLACE + 4} ${boards * ROW}`;
  const root = svg("svg", { viewBox: box, role: "img", class: "aa-shelf", fill: "currentColor" });
  const x = (place) => (place % BOARD) * PLACE;
  const y = (place) => Math.floor(place / BOARD) * ROW + 44;
  const cells = labels.map((text, place) => {
    const frame = { x: x(place) + 1, y: y(place), width: PLACE - 2, height: HIGH };
    const rect = svg("rect", { ...frame, fill: "var(--aa-h)", stroke: "currentColor" });
    const cell = svg("g", {}, rect, label(text, x(place) + PLACE / 2, y(place) + 17));
    cell.addEventListener("click", () => press(place));
    root.append(cell);
    return rect;
  });
  let first = 0;
  for (const [word, many] of words) {
    root.append(label(word, x(first) + (many * PLACE) / 2, y(first) + HIGH + 14));
    first += many;
  }
  const paths = svg("g", { fill: "none", "stroke-linecap": "round" });
  root.append(paths);
  // Over the board where both ends stand on one, else through the gap between the two.
  const leap = (from, to) => {
    const [a, b] = [x(from) + PLACE / 2, x(to) + PLACE / 2];
    if (y(from) === y(to)) {
      const up = y(from) - 8 - Math.min(30, 6 + Math.abs(b - a) / 4);
      return `M${a} ${y(from) - 2}C${a} ${up} ${b} ${up} ${b} ${y(to) - 2}`;
    }
    const down = y(to) > y(from);
    const ends = [y(from) + (down ? UNDER : -2), y(to) + (down ? -2 : UNDER)];
    const bend = down ? 22 : -22;
    return `M${a} ${ends[0]}C${a} ${ends[0] + bend} ${b} ${ends[1] - bend} ${b} ${ends[1]}`;
  };
  const show = (places, step, slab, all) => {
    root.setAttribute("aria-label", all);
    const ink = { stroke: "var(--aa-h)", "stroke-width": 1.8 };
    const leaps = jumps(places.slice(0, step)).map((i) =>
      svg("path", { ...ink, d: leap(places[i], places[i + 1]) }),
    );
    paths.replaceChildren(...leaps);
    places.forEach((place, i) => {
      const letter = i < step ? "hd"[Math.floor(i / slab) % 2] : "h";
      cells[place].setAttribute("fill", `var(--aa-${letter})`);
      cells[place].setAttribute("fill-opacity", i < step ? 0.4 : 0.07);
      cells[place].setAttribute("stroke-width", i === step - 1 ? 2 : 0);
    });
  };
  return { root, show };
}
