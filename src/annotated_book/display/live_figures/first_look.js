// The first look: two heads in one sentence, what every word gets from them, and the line between, which merges
// the heads. Exchange the last word, press the word that asks, and leave the transpose out.
//
// words: the sentence, with the first of the endings; endings: what can stand last
// places: the middle of each word; query: the word that asks first; asks: what each head asks
// weights: for each ending and head, a row per word, in hundredths
// right, wrong: for each ending and word, what it gets of animal and food, merged with and without the transpose
// gives: for each ending, the number that each word hands over, to either head
// means: what follows for the word that asks first, with each ending
// merge: whether the line that merges the heads is there
import { button, element, readout, svg } from "./host/figure.js";

const [WIDTH, HEIGHT, LEAST] = [356, 190, 5]; // of the curves; a smaller share is not written
// Of each head: its colour, the way its curves go, where they end, where its shares and its question stand; and the
// side of a word on which its bar stands.
const HEADS = [
  {
    ink: "var(--aa-h)",
    way: -1,
    end: 74,
    share: 86,
    asks: 12,
    name: "said of an animal",
    side: -8,
  },
  {
    ink: "var(--aa-d)",
    way: 1,
    end: 124,
    share: 118,
    asks: HEIGHT - 4,
    name: "of a food",
    side: 1,
  },
];
const FOUND = 50; // hundredths: with less, a head found nothing
const [FLOOR, TALL] = [72, 46]; // where bars stand, and the height of one whole

export default {
  render({ model, el }) {
    const { words, endings, places, weights, right, wrong, query, asks, gives, means, merge } =
      model.get("data");
    const now = { ending: 0, query, transposed: true };
    const same = (rows) => String(rows[0][now.query]) === String(rows[1][now.query]);
    const look = curves(words, places, asks, (index) => ((now.query = index), show()));
    const gets = bars(places);
    const choices = endings.map((word, index) =>
      button(word === "…" ? "nothing yet" : word, () => ((now.ending = index), show())),
    );
    const tick = element("input", {
      type: "checkbox",
      checked: true,
      autocomplete: "off",
      "aria-label": "join heads.transpose(0, 1).reshape(n, h * d)",
    });
    tick.addEventListener("change", () => ((now.transposed = tick.checked), show()));
    const cut = element("span", {}, ".transpose(0, 1)");
    const code = element("code", {}, "heads", cut, ".reshape(n, h * d)");
    const line = element(
      "label",
      { class: "aa-tick-line" },
      tick,
      element("span", {}, "join"),
      code,
    );
    const said = readout();

    // Which head found what stands in a word's row.
    function from(word, head) {
      return now.transposed ? head : Math.floor((2 * word + head) / words.length);
    }

    function show() {
      const all = [...words.slice(0, -1), endings[now.ending]];
      const found = (now.transposed ? right : wrong)[now.ending];
      choices.forEach((choice, index) =>
        choice.setAttribute("aria-pressed", String(index === now.ending)),
      );
      look.show(all, weights[now.ending], now.query, gives[now.ending]);
      gets.show(all, found, now.query, now.transposed, from);
      cut.classList.toggle("aa-left-out", !now.transposed);
      said.replaceChildren(...(now.transposed ? tell(all, found) : slip(all, found)));
    }

    // What each head found for the word that asks, and what follows from both.
    function tell(all, found) {
      const rows = weights[now.ending].map((head) => head[now.query]);
      const numbers = found[now.query];
      const word = `“${all[now.query]}”`;
      // A word without a quality has the query (0, 0).
      if (rows.every(even)) {
        const [one, two] = numbers.map((number, head) => ink(head, hundredth(number)));
        return [`${word} asks nothing, so it gets an even average: `, one, " and ", two, "."];
      }
      const lines = HEADS.map(({ name }, head) => {
        const top = all[rows[head].indexOf(Math.max(...rows[head]))];
        const finds = numbers[head] < FOUND ? `nothing and rests on “${top}”` : `“${all.at(-1)}”`;
        return [
          `Head ${head + 1} finds ${finds}: ${sum(rows[head], numbers[head])}`,
          ink(head, `${hundredth(numbers[head])} ${name}`),
          ". ",
        ];
      });
      const meant = now.query === query ? means[now.ending] : "";
      return [...lines.flat(), meant && `So ${word} ${meant}.`];
    }

    // What was found is the sum of what words hand over, each by its share.
    function sum(row, number) {
      if (number < FOUND || now.query !== query) return "";
      const parts = gives[now.ending].map((gift, j) => gift && `${hundredth(row[j])} · ${gift}`);
      return `${parts.filter(Boolean).reverse().join(" + ")} = `;
    }

    // Without the transpose two neighbours of one head share a row.
    function slip(all, found) {
      const word = `“${all[now.query]}”`;
      const [one, two] = [now.query, now.query + words.length].map((row) => all[row >> 1]);
      const parts = found[now.query].map((number, at) =>
        ink(from(now.query, at), hundredth(number)),
      );
      const blind = now.ending < 2 && same(wrong) && !same(right);
      return [
        element("strong", {}, "No error. Same shape."),
        ` ${word} is left with `,
        parts[0],
        " and ",
        parts[1],
        blind ? `, ${endings[0]} or ${endings[1]}. ` : ". ",
        "The first half of the sentence now holds what head 1 found, the second what head 2 found: ",
        `this word’s went to “${one}” and “${two}”.`,
      ];
    }

    el.append(
      element("div", { class: "aa-controls aa-endings" }, "it was", ...choices),
      look.root,
      ...(merge ? [line] : []),
      said,
      gets.root,
    );
    show();
  },
};

const ink = (head, text) => element("b", { style: `color: ${HEADS[head].ink}` }, text);
const hundredth = (number) => (number / 100).toFixed(2);
const even = (row) => row.every((share) => share === row[0]);
const written = (row, at) => (even(row) ? `1/${row.length}` : hundredth(row[at]));

// The sentence once, the curves of the first head above it, those of the second below; the wider, the more it gets.
function curves(words, places, asks, ask) {
  const paths = HEADS.map(({ ink }) => words.map(() => svg("path", { stroke: ink })));
  const names = places.map((x) => svg("text", { x, y: 102 }));
  const shares = HEADS.map(({ ink, share }) =>
    places.map((x) => svg("text", { class: "aa-share", x, y: share, fill: ink })),
  );
  const askers = places.map((x, j) => {
    const left = j ? (places[j - 1] + x) / 2 : 0;
    const end = j + 1 < places.length ? (x + places[j + 1]) / 2 : WIDTH;
    const box = { x: left + 1, y: 66, width: end - left - 2, height: 62, fill: "transparent" };
    const press = { class: "aa-ask", role: "button", tabindex: 0 };
    const made = svg("g", press, svg("rect", { ...box, rx: 3 }), names[j]);
    made.addEventListener("click", () => ask(j));
    made.addEventListener("keydown", (event) => {
      if (!["Enter", " "].includes(event.key)) return;
      event.preventDefault();
      ask(j);
    });
    return made;
  });
  const questions = HEADS.map(({ ink, asks: y }, head) =>
    svg("text", { x: 2, y, "font-size": 12.4, "text-anchor": "start", fill: ink }, asks[head]),
  );
  const drawn = svg("g", { fill: "none", "stroke-linecap": "round" }, ...paths.flat());
  const root = canvas("aa-look", HEIGHT, "group", drawn, ...shares.flat(), ...questions, ...askers);
  const show = (all, weights, query, gives) => {
    all.forEach((word, j) => {
      names[j].textContent = word;
      names[j].setAttribute("font-weight", j === query ? "bold" : "normal");
      askers[j].setAttribute("aria-label", `${word} asks`);
      askers[j].setAttribute("aria-pressed", String(j === query));
    });
    const said = HEADS.map(({ way, end }, head) => {
      const row = weights[head][query];
      paths[head].forEach((path, j) => {
        path.setAttribute("d", curve(places[query], places[j], end, way));
        path.style.strokeWidth = 0.4 + 0.09 * row[j];
        path.style.strokeOpacity = row[j] < LEAST ? 0.2 : gives[j] ? 0.9 : 0.35;
        shares[head][j].textContent = row[j] < LEAST ? "" : written(row, j);
      });
      return all.map((word, j) => `${word} ${written(row, j)}`).join(", ");
    });
    const label = `The shares of “${all[query]}”, by head 1: ${said[0]}; by head 2: ${said[1]}.`;
    root.setAttribute("aria-label", label);
  };
  return { root, show };
}

// What each word gets: two bars over each.
function bars(places) {
  const names = places.map((x) => svg("text", { x, y: FLOOR + 13, "font-size": 11 }));
  const made = HEADS.map(({ ink, side }) =>
    places.map((x) => svg("rect", { x: x + side, width: 7, fill: ink })),
  );
  const legend = HEADS.map(({ ink, name }) => svg("tspan", { fill: ink, dx: 5 }, name));
  const title = { x: 2, y: 11, "font-size": 12.4, "text-anchor": "start" };
  const what = svg("tspan");
  const head = svg("text", title, what, legend[0], ",", legend[1]);
  const root = canvas("aa-gets", FLOOR + 18, "img", head, ...made.flat(), ...names);
  const show = (all, found, query, transposed, from) => {
    what.textContent = transposed ? "each word gets:" : "without the transpose:";
    HEADS.forEach(({ name }, head) => {
      legend[head].textContent = transposed ? name : `from head ${head + 1}`;
      found.forEach((pair, j) => {
        const high = (Math.min(pair[head], 100) * TALL) / 100;
        made[head][j].setAttribute("fill", HEADS[from(j, head)].ink);
        made[head][j].setAttribute("y", FLOOR - high);
        made[head][j].setAttribute("height", high);
      });
    });
    all.forEach((word, j) => {
      names[j].textContent = word;
      names[j].setAttribute("font-weight", j === query ? "bold" : "normal");
    });
    const said = all.map((word, j) => `${word} ${found[j].map(hundredth).join(" and ")}`);
    root.setAttribute(
      "aria-label",
      `${what.textContent} ${legend.map((name) => name.textContent).join(", ")}: ${said.join(", ")}.`,
    );
  };
  return { root, show };
}

function canvas(name, height, role, ...parts) {
  const view = { class: name, viewBox: `0 0 ${WIDTH} ${height}`, role, fill: "currentColor" };
  return svg("svg", { ...view, "font-size": 13, "text-anchor": "middle" }, ...parts);
}

// From one word to another, the higher the farther they are; to itself, a small loop.
function curve(a, b, y, way) {
  const far = Math.abs(a - b);
  const [wide, high] = far ? [0, 4.4 * Math.sqrt(far)] : [9, 22];
  const top = y + way * high;
  return `M${a - wide / 3} ${y}C${a - wide} ${top} ${b + wide} ${top} ${b + wide / 3} ${y}`;
}
