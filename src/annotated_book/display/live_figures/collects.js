// What one word collects: whom it looks at, and what each of them brings, added up by feature.
//
// rows: of each row of buttons what stands before it, and its choices; query: the place of the word that asks
// scenes: one for every choice of each row, the last row's changing first: words, the middle of each, its share in
//   hundredths, whether it has anything to give (gives: what, if one thing only), parts: of each feature what each word
//   brings, sums: as written, said: the sentence under the figure
// features: their names; unit: how wide a bar of 1 is; line: its height, what is written at it, and at its sides
import { button, element, readout, svg } from "./host/figure.js";
import { HALO, label } from "./host/panel.js";

const [WIDE, HIGH, FOOT, WORD] = [384, 104, 64, 80]; // of the curves; where they end, and where the words stand
const [LEFT, STEP, TOP, BAR, LETTER] = [66, 40, 26, 26, 7]; // of the bars, and of a letter in one

export default {
  render({ model, el }) {
    const { rows, scenes, query, features, unit, line } = model.get("data");
    const now = rows.map(() => 0);
    const said = readout();
    const look = drawCurves(scenes[0], query);
    const gets = drawBars(scenes[0], features, unit, line);
    const choices = rows.map(([, names], row) =>
      names.map((name, i) => button(name, () => ((now[row] = i), show()))),
    );
    const show = () => {
      const scene = scenes[rows.reduce((at, [, names], row) => at * names.length + now[row], 0)];
      choices.forEach((all, row) =>
        all.forEach((each, i) => each.setAttribute("aria-pressed", String(i === now[row]))),
      );
      look.show(scene);
      gets.show(scene);
      said.textContent = scene.said;
    };
    const lines = rows.map(([name], row) =>
      element("div", { class: "aa-controls aa-endings" }, name, ...choices[row]),
    );
    el.append(...lines, element("div", { class: "aa-collects" }, look.root, gets.root), said);
    show();
  },
};

function canvas(height, ...parts) {
  const view = { viewBox: `0 0 ${WIDE} ${height}`, role: "img", fill: "currentColor" };
  return svg("svg", { ...view, "font-size": 13, "text-anchor": "middle" }, ...parts);
}

/** Draw whom a word looks at, as curves over its sentence. */
export function drawCurves(scene, query) {
  const ink = (letter) => ({ fill: `var(--aa-${letter})` });
  const curves = scene.words.map(() => svg("path", { fill: "none", stroke: "var(--aa-h)" }));
  const bold = (j) => (j === query ? { "font-weight": "bold" } : {});
  const words = scene.words.map((_, j) => svg("text", { y: WORD, ...bold(j) }));
  const shares = scene.words.map(() => svg("text", { y: WORD + 17, "font-size": 12, ...ink("h") }));
  const gives = scene.words.map(() => svg("text", { y: WORD + 34, "font-size": 12, ...ink("m") }));
  const root = canvas(HIGH + (scene.gives ? 17 : 0), ...curves, ...words, ...shares, ...gives);
  const show = ({ words: names, places, shares: parts, gives: given, brings }) => {
    names.forEach((name, j) => {
      curves[j].setAttribute("d", curve(places[query], places[j]));
      curves[j].style.strokeWidth = `${0.6 + 0.13 * parts[j]}px`;
      curves[j].style.strokeOpacity = brings[j] ? 0.85 : 0.25;
      words[j].textContent = name;
      shares[j].textContent = (parts[j] / 100).toFixed(2);
      gives[j].textContent = given ? `· ${given[j]}` : "";
      for (const text of [words[j], shares[j], gives[j]]) text.setAttribute("x", places[j]);
    });
    const each = names.map((name, j) => `${name} ${(parts[j] / 100).toFixed(2)}`);
    root.setAttribute("aria-label", `The weights of “${names[query]}”: ${each.join(", ")}.`);
  };
  return { root, show };
}

// From one word to another, the higher the farther they are; to itself, a small loop.
function curve(a, b) {
  const far = Math.abs(a - b);
  const [wide, high] = far ? [0, 4.2 * Math.sqrt(far)] : [15, 36];
  const top = (FOOT - high).toFixed(1);
  return `M${a - wide / 3} ${FOOT}C${a - wide} ${top} ${b + wide} ${top} ${b + wide / 3} ${FOOT}`;
}

function drawBars(scene, features, unit, line) {
  const last = scene.words.length - 1;
  const look = { height: BAR, fill: "var(--aa-m)", stroke: "var(--aa-m)" };
  const rows = features.map((name, i) => {
    const y = TOP + STEP * i;
    const bars = scene.words.map((_, j) =>
      svg("rect", { y, ...look, "fill-opacity": j === last ? 0.5 : 0.18 }),
    );
    const names = scene.words.map(() => label("", 0, y + 18));
    const sum = label("", 0, y + 18, { "font-size": 14, "font-weight": "bold", style: HALO });
    const head = label(name, LEFT - 8, y + 18, { "font-size": 13, "text-anchor": "end" });
    sum.setAttribute("text-anchor", "start");
    return { bars, names, sum, parts: [head, ...bars, ...names, sum] };
  });
  const end = TOP + STEP * features.length;
  const root = canvas(end, ...border(line, unit, end), ...rows.flatMap(({ parts }) => parts));
  const show = ({ words, parts, sums }) => {
    rows.forEach(({ bars, names, sum }, i) => {
      let x = LEFT;
      words.forEach((word, j) => {
        const width = unit * parts[i][j];
        bars[j].style.x = `${x}px`;
        bars[j].style.width = `${width}px`;
        names[j].textContent = width > LETTER * word.length ? word : "";
        names[j].style.transform = `translateX(${x + width / 2}px)`;
        x += width;
      });
      sum.textContent = sums[i];
      sum.style.transform = `translateX(${x + 8}px)`;
    });
    const each = features.map((name, i) => `${name} ${sums[i]}`);
    root.setAttribute("aria-label", `${each.join(", ")}.`);
  };
  return { root, show };
}

function border(line, unit, end) {
  if (!line) return [];
  const [height, at, less, more] = line;
  const x = LEFT + unit * height;
  const dashes = { stroke: "currentColor", "stroke-dasharray": "4 3" };
  return [
    svg("path", { d: `M${x} 18V${TOP}M${x} ${TOP + BAR}V${end}`, ...dashes }),
    svg("path", { d: `M${x} ${TOP}v${BAR}`, stroke: "currentColor", "stroke-opacity": 0.4 }),
    label(at, x, 12, { "font-weight": "bold" }),
    label(`← ${less}`, x - 22, 12, { "text-anchor": "end" }),
    label(`${more} →`, x + 22, 12, { "text-anchor": "start" }),
  ];
}
