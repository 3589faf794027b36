// The first look: exchange the last word of a sentence, choose the word that asks, and see what it collects.
//
// words: the sentence, with the first of the endings; endings: what can stand last
// features: the names of what is collected
// weights: for each ending, a row per word, in hundredths; collected: the same, a row of features
// query: the word that asks first
import { button, element, readout, slider, svg } from "./host/figure.js";

const PLACE = 62; // of a word in a line, on a wide page
const [HEIGHT, BASE] = [172, 132]; // of the line of words, and where it stands in it
const [ROW, COLUMN] = [30, 110]; // on a phone: a word in each row, right of its arcs

export default {
  render({ model, el }) {
    const { words, endings, features, weights, collected, query } = model.get("data");
    const now = { ending: 0, query };
    const text = (index) => (index === words.length - 1 ? endings[now.ending] : words[index]);
    const ask = (index) => {
      now.query = index;
      asker.show(index);
      show();
    };
    const choices = endings.map((word, index) =>
      button(word, () => ((now.ending = index), show())),
    );
    const asker = slider({
      label: "who asks",
      max: words.length - 1,
      value: query,
      say: (index) => text(index),
      move: (index) => ask(index),
    });
    asker.label.lastChild.style.minWidth = `${Math.max(...words.map((word) => word.length)) + 1}ch`;
    const pictures = [draw(words, ask, false), draw(words, ask, true)];
    const bars = features.map((name) => bar(name, Math.max(...collected.flat(2))));
    const head = element("span", { class: "aa-collects", "aria-hidden": "true" });
    const said = readout(); // for screen readers: the others see it
    said.classList.add("aa-heard");

    function show() {
      const row = weights[now.ending][now.query];
      const sums = collected[now.ending][now.query];
      const all = words.map((_, index) => text(index));
      choices.forEach((choice, index) =>
        choice.setAttribute("aria-pressed", String(index === now.ending)),
      );
      asker.show(now.query);
      const shares = row.map((weight, j) => `${all[j]} ${hundredth(weight)}`).join(", ");
      for (const picture of pictures)
        picture.show(all, row, now.query, `The shares of “${all[now.query]}”: ${shares}.`);
      bars.forEach(({ set }, index) => set(sums[index]));
      head.textContent = `“${all[now.query]}” collects`;
      const parts = features.map((name, index) => `${hundredth(sums[index])} of ${name}`);
      said.textContent = `“${all[now.query]}” collects ${parts.join(", ")}`;
    }

    const kept = element(
      "div",
      { class: "aa-bars", "aria-hidden": "true" },
      ...bars.map(({ row }) => row),
    );
    el.append(
      element(
        "div",
        { class: "aa-controls" },
        element("span", { class: "aa-endings" }, "… it was", ...choices),
        asker.label,
      ),
      element("div", { class: "aa-sentence" }, ...pictures.map(({ root }) => root), head, kept),
      said,
    );
    show();
  },
};

const hundredth = (number) => (number / 100).toFixed(2);

// The words in a line, or below each other, with arcs from the one that asks; the wider, the more it gets.
function draw(words, ask, upright) {
  const size = upright ? [COLUMN + 130, ROW * words.length] : [PLACE * words.length, HEIGHT];
  const place = (j) => (upright ? [COLUMN, ROW * (j + 0.5)] : [PLACE * (j + 0.5), BASE]);
  const arcs = words.map(() =>
    svg("path", { fill: "none", "stroke-linecap": "round", stroke: "var(--aa-h)" }),
  );
  const letters = { "font-size": 13, ...(upright ? {} : { "text-anchor": "middle" }) };
  const names = words.map((_, j) => {
    const [x, y] = place(j);
    return svg("text", { x: upright ? x + 10 : x, y: upright ? y + 4 : y + 18, ...letters });
  });
  const shares = words.map((_, j) => {
    const [x, y] = place(j);
    return svg("text", {
      x: upright ? x + 90 : x,
      y: upright ? y + 4 : y + 35,
      fill: "var(--aa-h)",
      ...letters,
    });
  });
  const askers = words.map((_, j) => {
    const [x, y] = place(j);
    const box = upright
      ? { x: 0, y: y - ROW / 2, width: size[0], height: ROW }
      : { x: x - PLACE / 2, y: 0, width: PLACE, height: HEIGHT };
    const made = svg(
      "g",
      { class: "aa-ask" },
      svg("rect", { ...box, fill: "transparent" }),
      names[j],
      shares[j],
    );
    made.addEventListener("click", () => ask(j));
    return made;
  });
  const root = svg(
    "svg",
    { viewBox: `0 0 ${size.join(" ")}`, role: "img", fill: "currentColor" },
    ...arcs,
    ...askers,
  );
  root.classList.add(upright ? "aa-upright" : "aa-flat");
  root.style.maxWidth = `${size[0]}px`;
  const show = (all, row, query, label) => {
    root.setAttribute("aria-label", label);
    names.forEach((name, j) => {
      name.textContent = all[j];
      name.setAttribute("font-weight", j === query ? "bold" : "normal");
      name.setAttribute("fill", `var(--aa-${j === query ? "h" : "m"})`);
      shares[j].textContent = hundredth(row[j]);
    });
    arcs.forEach((arc, j) => {
      arc.setAttribute("d", curve(place(query), place(j), upright));
      arc.setAttribute("stroke-width", 0.5 + 0.16 * row[j]);
      arc.setAttribute("stroke-opacity", row[j] < 2 ? 0.15 : 0.8);
    });
  };
  return { root, show };
}

// An arc, the higher the farther its ends; a word's share of itself is a small loop.
function curve([x, y], [u, v], upright) {
  const far = Math.abs(upright ? v - y : u - x);
  const high = far ? 18 + 0.32 * far : 22;
  const wide = far ? 0 : 9;
  return upright
    ? `M${x} ${y - wide / 3}C${x - high * 1.3} ${y - wide} ${u - high * 1.3} ${v + wide} ${u} ${v + wide / 3}`
    : `M${x - wide / 3} ${y}C${x - wide} ${y - high * 1.3} ${u + wide} ${v - high * 1.3} ${u + wide / 3} ${v}`;
}

function bar(name, most) {
  const [filled, number] = [element("i"), element("b")];
  const row = element("span", {}, element("span", {}, name), element("span", {}, filled), number);
  const set = (sum) => {
    filled.style.width = `${(100 * sum) / most}%`;
    number.textContent = hundredth(sum);
  };
  return { row, set };
}
