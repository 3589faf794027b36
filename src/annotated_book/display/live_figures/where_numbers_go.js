// Where every number goes when heads are split and merged, with and without the transposes.
//
// n, h, d: words, heads, width of a head; follow: the number that is lit to begin with
// split, merge: whether each has its transpose to begin with
import { element, readout, slider } from "./host/figure.js";

const AXES = ["n, h·d", "n, h, d", "h, n, d", "n, h, d", "n, h·d"];
const SLICES = { n: "word", h: "head" };
const WAYS = ["Both wrong", "Wrong split", "Wrong merge", "The right way"];

/** Exchange the first two of three axes, and give the numbers in the order of the new ones. */
export function transpose(numbers, [a, b, c]) {
  const moved = [];
  for (let j = 0; j < b; j++)
    for (let i = 0; i < a; i++) moved.push(...numbers.slice((i * b + j) * c, (i * b + j + 1) * c));
  return moved;
}

/**
 * Give what the way makes, step by step: a shape, and the numbers in the order of its axes.
 *
 * A number is its place in the input. A view or a reshape leaves their order as it is. Without its
 * transpose, split or merge reshapes straight, and the step before is not made: null.
 */
export function steps({ n, h, d }, split, merge) {
  const input = Array.from({ length: n * h * d }, (_, i) => i);
  const heads = split ? transpose(input, [n, h, d]) : input;
  const result = merge ? transpose(heads, [h, n, d]) : heads;
  return [
    { shape: [n, h * d], numbers: input },
    split ? { shape: [n, h, d], numbers: input } : null,
    { shape: [h, n, d], numbers: heads },
    merge ? { shape: [n, h, d], numbers: result } : null,
    { shape: [n, h * d], numbers: result },
  ];
}

/** Count the numbers that stand elsewhere than the right way puts them, and what is mixed. */
export function count(sizes, split, merge) {
  const { n, h, d } = sizes;
  const made = steps(sizes, split, merge);
  const right = steps(sizes, true, true);
  const astray = (at) =>
    made[at].numbers.filter((number, i) => number !== right[at].numbers[i]).length;
  const words = made[4].numbers.map((number) => Math.floor(number / (h * d)));
  const rows = Array.from({ length: n }, (_, i) => words.slice(i * h * d, (i + 1) * h * d));
  const mixed = rows.filter((row) => new Set(row).size > 1).length;
  return { heads: astray(2), result: astray(4), mixed };
}

export default {
  render({ model, el }) {
    const { follow, split, merge, ...sizes } = model.get("data");
    const [transposed, width] = [{ split, merge }, sizes.h * sizes.d];
    let lit = follow;
    const spell = (number) => `${Math.floor(number / width) + 1}${"abcdefgh"[number % width]}`;
    const said = readout();
    const room = element("div", { class: "aa-steps" });
    const choose = (number) => {
      follower.show((lit = number));
      for (const cell of room.querySelectorAll("[data-number]"))
        cell.classList.toggle("aa-lit", Number(cell.dataset.number) === lit);
    };
    const show = () => {
      const way = [transposed.split, transposed.merge];
      const right = steps(sizes, true, true);
      const { split: cut, merge: joined } = transposed;
      const by = ["x", "view", cut ? "transpose" : "reshape", "transpose", "reshape"];
      const drawn = steps(sizes, ...way).map(
        (step, i) => step && panel(`${by[i]} `, AXES[i], step, right[i].numbers, spell),
      );
      room.replaceChildren(...drawn.filter(Boolean));
      const { heads, result, mixed } = count(sizes, ...way);
      said.textContent = `${WAYS[2 * cut + joined]}. In a wrong place: ${heads} of ${sizes.n * width} numbers in the heads, ${result} in the result. Rows that mix words: ${mixed}.`;
      choose(lit);
    };
    for (const kind of ["pointerover", "click"])
      room.addEventListener(kind, ({ target }) => {
        if (target.dataset.number) choose(Number(target.dataset.number));
      });
    const range = { max: sizes.n * width - 1, value: lit };
    const follower = slider({ label: "follow", ...range, say: spell, move: choose });
    const ticks = Object.entries(transposed).map(([name, checked]) => {
      const input = element("input", { type: "checkbox", checked });
      input.addEventListener("change", () => ((transposed[name] = input.checked), show()));
      return element("label", {}, input, `transpose in the ${name}`);
    });
    const ticked = element("div", { class: "aa-ticks" }, ...ticks);
    const controls = element("div", { class: "aa-controls" }, ticked, follower.label);
    el.append(element("div", { class: "aa-where" }, controls, said, room));
    show();
  },
};

// A step: a slice for each index of the first of three axes, a row for each of the second.
function panel(by, axes, { shape, numbers }, right, spell) {
  const letters = [...axes].map((text) =>
    /\w/.test(text) ? element("span", { class: `dim-${text}` }, text) : text,
  );
  const [first, second] = axes.split(", ");
  const three = shape.length === 3;
  const [slices, rows, columns] = three ? shape : [1, ...shape];
  const cells = numbers.map((number, i) => {
    const kind = number !== right[i] && "aa-astray";
    const cell = element("span", { "data-number": number, class: kind }, spell(number));
    cell.style.setProperty("--shade", `${8 + 18 * (parseInt(spell(number)) - 1)}%`);
    return cell;
  });
  const row = (i) => {
    const lane = { class: `aa-lane dim-${three ? second : first}`, "data-name": (i % rows) + 1 };
    return element("div", lane, ...cells.slice(i * columns, (i + 1) * columns));
  };
  const slab = (s) => {
    const named = {
      class: `aa-slab dim-${first}`,
      "data-name": three && `${SLICES[first]} ${s + 1}`,
    };
    return element("div", named, ...Array.from({ length: rows }, (_, j) => row(s * rows + j)));
  };
  const label = { role: "img", "aria-label": `${by}(${axes}): ${numbers.map(spell).join(" ")}` };
  const slabs = Array.from({ length: slices }, (_, s) => slab(s));
  const title = element("div", {}, element("code", {}, by), element("b", {}, "(", ...letters, ")"));
  const grid = element("div", { class: "aa-slabs", ...label }, ...slabs);
  return element("div", { class: "aa-made" }, title, grid);
}
