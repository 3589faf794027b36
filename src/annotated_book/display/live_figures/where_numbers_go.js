// Where every number goes when heads are split and merged, with and without the transposes.
//
// words: n of them; h, d: heads, width of a head; follow: the number that is lit to begin with
// split, merge: whether each has its transpose to begin with
import { calm, element, readout, slider, svg } from "./host/figure.js";
import { label } from "./host/panel.js";

const WAYS = ["Both wrong", "Wrong split", "Wrong merge", "The right way"];

/** Exchange the first two of three axes, and give the numbers in the order of the new ones. */
export function transpose(numbers, [a, b, c]) {
  const moved = [];
  for (let j = 0; j < b; j++)
    for (let i = 0; i < a; i++) moved.push(...numbers.slice((i * b + j) * c, (i * b + j + 1) * c));
  return moved;
}

/**
 * Give the numbers of the input, of the heads and of the result, in the order of their axes.
 *
 * A number is its place in the input. A reshape, and a step without its transpose, is one, leaves
 * their order as it is.
 */
export function steps({ n, h, d }, split, merge) {
  const input = Array.from({ length: n * h * d }, (_, i) => i);
  const heads = split ? transpose(input, [n, h, d]) : input;
  return [input, heads, merge ? transpose(heads, [h, n, d]) : heads];
}

/** Count what stands elsewhere than the right way puts it, and name the words that a head holds. */
export function count(sizes, split, merge) {
  const { n, h, d } = sizes;
  const [made, right] = [steps(sizes, split, merge), steps(sizes, true, true)];
  const astray = (at) => made[at].filter((number, i) => number !== right[at][i]).length;
  const words = made[1].map((number) => Math.floor(number / (h * d)));
  const held = Array.from({ length: h }, (_, i) => words.slice(i * n * d, (i + 1) * n * d));
  return { heads: astray(1), result: astray(2), held: held.map((all) => [...new Set(all)]) };
}

export default {
  render({ model, el }) {
    const { words, h, d, follow, split, merge } = model.get("data");
    const [sizes, way] = [
      { n: words.length, h, d },
      { split, merge },
    ];
    const width = h * d;
    const spell = (number) => `${Math.floor(number / width) + 1}${"abcdefgh"[number % width]}`;
    const said = readout();
    const choose = (number) => {
      follower.show(number);
      blocks.light(number);
    };
    const blocks = drawBlocks(words, sizes, spell, choose);
    const show = () => {
      const { heads, result, held } = count(sizes, way.split, way.merge);
      const name = WAYS[2 * way.split + way.merge];
      const holds = held.map((all, i) => `head ${i + 1} ${all.map((w) => words[w]).join(", ")}`);
      said.textContent = `${name}. In a wrong place: ${heads} of ${words.length * width} numbers in the heads, ${result} in the result. Each head attends to what it holds: ${holds.join("; ")}.`;
      blocks.show(steps(sizes, way.split, way.merge), heads > 0, name);
      choose(Number(follower.input.value));
    };
    const range = { max: words.length * width - 1, value: follow };
    const follower = slider({ label: "follow", ...range, say: spell, move: choose });
    const ticks = Object.keys(way).map((name) => {
      const input = element("input", { type: "checkbox", checked: way[name] });
      input.addEventListener("change", () => ((way[name] = input.checked), show()));
      return element("label", {}, input, `transpose in the ${name}`);
    });
    const ticked = element("div", { class: "aa-ticks" }, ...ticks);
    const knobs = element("div", { class: "aa-knobs" }, ticked, follower.label, said);
    el.append(element("div", { class: "aa-panels aa-where" }, blocks.root, knobs));
    show();
  },
};

const [WIDE, HIGH, LEFT, GAP, TOPS] = [44, 30, 52, 26, [22, 184, 344]];

// The input, the heads side by side under it, the result under them, and where one number is in each.
function drawBlocks(words, { n, h, d }, spell, choose) {
  const [width, lane] = [h * d, (h - 1) * GAP];
  const [right, high] = [LEFT + WIDE * width + lane, HIGH * n];
  const spot = (step, place) => {
    const [head, within] = [Math.floor(place / (n * d)), place % (n * d)];
    const inHeads = [head * (WIDE * d + GAP) + (within % d) * WIDE, Math.floor(within / d)];
    const inRows = [lane / 2 + (place % width) * WIDE, Math.floor(place / width)];
    const [x, row] = step === 1 ? inHeads : inRows;
    return [LEFT + x, TOPS[step] + row * HIGH];
  };
  const root = svg("svg", { viewBox: `0 0 ${right + 8} ${TOPS[2] + high + 8}`, role: "img" });
  const band = {
    x: LEFT - 50,
    y: TOPS[1] - 44,
    width: right - LEFT + 56,
    height: high + 52,
    rx: 6,
  };
  const room = svg("rect", { ...band, fill: "none", "stroke-dasharray": "5 4" });
  const note = label("", right / 2 + 2, TOPS[1] - 28);
  const middle = LEFT + (right - LEFT) / 2;
  const under = label("the result", middle, TOPS[2] - 8);
  const titles = [label("x", middle, 14), under];
  for (let i = 0; i < h; i++) {
    const at = LEFT + i * (WIDE * d + GAP) + (WIDE * d) / 2;
    titles.push(label(`head ${i + 1}`, at, TOPS[1] - 8, { fill: `var(--aa-${"hd"[i % 2]})` }));
  }
  const named = TOPS.flatMap((top) =>
    words.map((word, i) =>
      label(word, LEFT - 6, top + (i + 0.6) * HIGH, { "text-anchor": "end", fill: "var(--aa-n)" }),
    ),
  );
  const cells = TOPS.map((_, step) =>
    Array.from({ length: n * width }, (_, place) => {
      const [x, y] = spot(step, place);
      const box = svg("rect", { width: WIDE - 2, height: HIGH - 2, fill: "var(--aa-n)" });
      const text = label("", WIDE / 2 - 1, HIGH / 2 + 4, { "font-size": 13 });
      const corner = svg("path", { d: `M${WIDE - 14} 0h12v12z` });
      const cell = svg("g", { transform: `translate(${x} ${y})` }, box, corner, text);
      for (const kind of ["pointerover", "click"])
        cell.addEventListener(kind, () => choose(now[step][place]));
      return { cell, box, text, corner };
    }),
  );
  const frame = { width: WIDE - 2, height: HIGH - 2, fill: "none", "stroke-width": 3 };
  const lit = TOPS.map(() => svg("rect", { ...frame, stroke: "var(--aa-h)" }));
  const all = cells.map((each, i) =>
    svg("g", { class: `aa-block-${i}` }, ...each.map(({ cell }) => cell)),
  );
  root.append(room, note, ...titles, ...named, ...all, ...lit);
  root.setAttribute("fill", "currentColor");
  let now;
  const show = (made, wrong, name) => {
    now = made;
    const right = steps({ n, h, d }, true, true);
    cells.forEach((each, step) =>
      each.forEach(({ box, text, corner }, place) => {
        const number = made[step][place];
        text.textContent = spell(number);
        box.setAttribute("fill-opacity", 0.08 + 0.18 * Math.floor(number / width));
        corner.setAttribute("visibility", number === right[step][place] ? "hidden" : "visible");
      }),
    );
    note.textContent = `attention happens here${wrong ? ", on the wrong numbers" : ""}`;
    room.setAttribute("stroke", `var(--aa-${wrong ? "h" : "b"})`);
    const told = ["x", "heads", "result"].map(
      (what, i) => `${what}: ${made[i].map(spell).join(" ")}`,
    );
    root.setAttribute("aria-label", `${name}. ${told.join(". ")}.`);
  };
  const light = (number) => {
    const ways = now.map((made, step) => spot(step, made.indexOf(number)));
    cells.forEach((each, step) =>
      each.forEach(({ cell }, place) =>
        cell.classList.toggle("aa-lit", now[step][place] === number),
      ),
    );
    const stops = ways.map(([x, y]) => ({ transform: `translate(${x}px, ${y}px)` }));
    lit.forEach((box, step) => (box.style.transform = stops[step].transform));
    if (!calm()) lit[2].animate(stops, { duration: 1600, easing: "ease-in-out" });
  };
  return { root, show, light };
}
