// Where every number goes when heads are split and merged, with and without the transposes.
//
// n, h, d: the sizes to begin with: tokens, heads, width of a head
// follow: the number that is lit to begin with, as [token, feature], counted from 0
import { element, readout, slider } from "./host/figure.js";

const SIZES = { n: ["tokens n", 5], h: ["heads h", 4], d: ["width d", 4] }; // and the most of each
const SLICES = { n: "token", h: "head" };
// What makes each step, in which order of axes, and what that does.
const STEPS = [
  { by: "x", axes: "n, h·d", does: "a row per token" },
  { by: "view", axes: "n, h, d", does: "each row cut into heads" },
  { by: "transpose", axes: "h, n, d", does: "heads in front" },
  { by: "transpose", axes: "n, h, d", does: "tokens in front" },
  { by: "reshape", axes: "n, h·d", does: "heads side by side" },
];

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
  const [, , heads, , result] = steps(sizes, split, merge).map((step) => step?.numbers);
  const right = steps(sizes, true, true).map((step) => step.numbers);
  const astray = (numbers, place) =>
    numbers.filter((number, i) => number !== right[place][i]).length;
  const tokens = (numbers) => [
    ...new Set(numbers.map((number) => Math.floor(number / (h * d)) + 1)),
  ];
  const rows = Array.from({ length: n }, (_, i) => result.slice(i * h * d, (i + 1) * h * d));
  return {
    heads: astray(heads, 2),
    first: tokens(heads.slice(0, n * d)), // the tokens in head 1, from 1
    result: astray(result, 4),
    mixed: rows.filter((row) => tokens(row).length > 1).length,
  };
}

/** Say what a way does, up to a step: a line for the heads, and one for the result. */
export function say(sizes, split, merge, upTo = 5) {
  const { heads, first, result, mixed } = count(sizes, split, merge);
  const way = split
    ? merge
      ? "the right way"
      : "wrong merge"
    : merge
      ? "wrong split"
      : "both wrong";
  const all = sizes.n * sizes.h * sizes.d;
  const wrong = (many) => `${many} of ${all} numbers in a wrong place`;
  const said = [`Step ${upTo} of 5, ${way}.`];
  if (upTo >= 3)
    said.push(
      heads ? `Heads: ${wrong(heads)}; head 1 has only ${tokens(first)}.` : "Heads: all in place.",
    );
  if (upTo === 5)
    said.push(
      result
        ? `Result: ${wrong(result)}; ${mixed} of ${sizes.n} rows mix tokens.`
        : heads
          ? "Result: all in place, as one mistake undoes the other."
          : "Result: all in place.",
    );
  return said.join("\n");
}

const tokens = (list) =>
  list.length === 1
    ? `token ${list[0]}`
    : `tokens ${list.slice(0, -1).join(", ")} and ${list.at(-1)}`;

export default {
  render({ model, el }) {
    const { follow, ...sizes } = model.get("data");
    const at = { token: follow[0], feature: follow[1] };
    const transposed = { split: true, merge: true };
    let [upTo, light] = [1, []]; // what comes is not shown before it is asked for
    const said = readout();

    const choose = (number) => {
      const width = sizes.h * sizes.d;
      [at.token, at.feature] = [Math.floor(number / width), number % width];
      for (const lit of light) lit(number);
    };
    const tell = () => {
      frames.forEach(({ root }, i) => {
        root.inert = root.classList.toggle("aa-unseen", i >= upTo);
        root.classList.toggle("aa-current", i === upTo - 1); // on a phone the others are not shown
      });
      said.textContent = say(sizes, transposed.split, transposed.merge, upTo);
    };
    const show = () => {
      const { n, h, d } = sizes;
      const right = steps(sizes, true, true);
      const made = steps(sizes, transposed.split, transposed.merge);
      const straight = [false, false, !transposed.split, false, !transposed.merge];
      room.style.setProperty("--n", n);
      room.style.setProperty("--columns", h * d);
      light = frames.map(({ fill }, i) => fill(made[i], right[i], straight[i], sizes));
      choose(Math.min(at.token, n - 1) * h * d + Math.min(at.feature, h * d - 1));
      tell();
    };

    const frames = STEPS.map((step, i) => frameOf(step, i + 1, choose));
    const ticks = Object.keys(transposed).map((name) =>
      tick(`transpose in the ${name}`, (checked) => {
        transposed[name] = checked;
        show();
      }),
    );
    const sliders = Object.entries(SIZES).map(([name, [label, max]]) =>
      slider({
        label,
        min: 1,
        max,
        value: sizes[name],
        move: (size) => ((sizes[name] = size), show()),
      }),
    );
    const walk = slider({
      label: "step",
      min: 1,
      max: 5,
      value: upTo,
      say: (step) => `${step} of 5`,
      move: (step) => ((upTo = step), tell()),
    });
    const controls = element(
      "div",
      { class: "aa-controls" },
      walk.label,
      element("div", { class: "aa-ticks" }, ...ticks),
      ...sliders.map(({ label }) => label),
    );
    const room = element("div", { class: "aa-steps" }, ...frames.map(({ root }) => root));
    el.append(element("div", { class: "aa-where" }, controls, said, room));
    show();
  },
};

// A box that takes a transpose out when it is unticked.
function tick(name, ticked) {
  const input = element("input", { type: "checkbox", checked: true });
  input.addEventListener("change", () => ticked(input.checked));
  return element("label", {}, input, name);
}

// What stays of a step: its number and its title; `fill` draws the rest.
function frameOf({ by, axes, does }, number, choose) {
  const letters = [...axes].map((text) =>
    /\w/.test(text) ? element("span", { class: `dim-${text}` }, text) : text,
  );
  const title = element(
    "div",
    {},
    `${number}. `,
    element("code", {}, by),
    " ",
    element("b", {}, "(", ...letters, ")"),
  );
  const [doing, grid, place] = ["aa-does", "aa-slabs", "aa-place"].map((kind) =>
    element("div", { class: kind }),
  );
  const [first, second, third] = axes.split(", ");
  let [cells, numbers, shape] = [[], [], []];

  const pick = ({ target }) => cells.includes(target) && choose(numbers[cells.indexOf(target)]);
  for (const kind of ["pointerover", "click", "focusin"]) grid.addEventListener(kind, pick);
  grid.addEventListener("keydown", (event) => {
    const to = next(event.key, cells.indexOf(event.target), shape);
    if (to === null) return;
    event.preventDefault();
    cells[to].focus();
  });

  // Draws a step, or empty cells where it is left out, and gives what lights a number in it.
  const fill = (step, right, straight, { n, h, d }) => {
    shape = third ? right.shape : [1, ...right.shape];
    numbers = step ? step.numbers : [];
    const [a, b, c] = shape;
    const slice = third ? (s) => `${SLICES[first]} ${s + 1}` : () => undefined;
    const spell = (number) => [
      Math.floor(number / (h * d)) + 1,
      String.fromCharCode(97 + (number % (h * d))),
    ];
    const where = (i) => {
      const parts = [
        slice(Math.floor(i / (b * c))),
        `row ${(Math.floor(i / c) % b) + 1}`,
        `column ${(i % c) + 1}`,
      ];
      return parts.filter(Boolean).join(", ");
    };
    cells = right.numbers.map((belongs, i) => {
      if (!step) return element("span");
      const [token, feature] = spell(numbers[i]);
      const astray = numbers[i] !== belongs;
      const label = `token ${token}, feature ${feature}, now ${where(i)}${astray ? ", a wrong place" : ""}`;
      const cell = element(
        "span",
        { role: "gridcell", "aria-label": label, class: astray && "aa-astray" },
        `${token}${feature}`,
      );
      cell.style.setProperty("--shade", `${8 + (36 * (token - 1)) / Math.max(1, n - 1)}%`);
      return cell;
    });
    const row = (s, j) => {
      const given = {
        role: step && "row",
        class: `aa-lane dim-${third ? second : first}`,
        "data-name": j + 1,
      };
      return element("div", given, ...cells.slice((s * b + j) * c, (s * b + j + 1) * c));
    };
    const slab = (s) => {
      const given = {
        role: step && "rowgroup",
        class: `aa-slab dim-${first}`,
        "data-name": slice(s),
      };
      return element("div", given, ...Array.from({ length: b }, (_, j) => row(s, j)));
    };
    doing.textContent = step ? (straight ? "reshaped as they come" : does) : "left out";
    grid.replaceChildren(...Array.from({ length: a }, (_, s) => slab(s)));
    if (step) grid.setAttribute("role", "grid");
    else grid.removeAttribute("role");
    grid.setAttribute("aria-label", `(${axes}): ${doing.textContent}`);
    place.textContent = "\u00a0";
    return (number) =>
      numbers.forEach((other, i) => {
        cells[i].classList.toggle("aa-lit", other === number);
        cells[i].tabIndex = other === number ? 0 : -1;
        if (other === number) place.textContent = `${spell(number).join("")}: ${where(i)}`;
      });
  };
  return { root: element("div", { class: "aa-made" }, title, doing, grid, place), fill };
}

/** Give the cell that an arrow leads to: over the edge of a slice into the next. Null: no arrow. */
export function next(key, at, [a, b, c]) {
  const [slice, row, column] = [Math.floor(at / (b * c)), Math.floor(at / c) % b, at % c];
  const to = (s, j, k) => (s < 0 || s >= a ? at : (s * b + j) * c + k);
  if (key === "ArrowRight") return column < c - 1 ? at + 1 : to(slice + 1, row, 0);
  if (key === "ArrowLeft") return column > 0 ? at - 1 : to(slice - 1, row, c - 1);
  if (key === "ArrowDown") return row < b - 1 ? at + c : to(slice + 1, 0, column);
  if (key === "ArrowUp") return row > 0 ? at - c : to(slice - 1, b - 1, column);
  return null;
}
