// The first look: two heads in one sentence, what every word gets from them, and the line between, which merges
// the heads. Exchange the last word, press the word that asks, and leave the transpose out.
//
// words: the sentence, with the first of the endings; endings: what can stand last
// places: the middle of each word; query: the word that asks first; asks: what each head asks
// weights: for each ending and head, a row per word, in hundredths
// right, wrong: for each ending and word, what it gets of animal and food, merged with and without the transpose
// gives: for each ending, the number that each word hands over, to either head
// names: what the heads ask about; kinds: the word that is one, for each
// merge: whether the line that merges the heads is there; causal: whether no word sees a later one
import { button, element, readout, svg } from "./host/figure.js";

const [WIDTH, HEIGHT, LEAST] = [356, 182, 5]; // of the curves; a smaller share is not written
const MUCH = 30; // hundredths: of such a share is said that nothing comes of it
// Of each head: its colour, the way its curves go, where they end, where its shares and its question stand; and the
// side of a word on which its bar stands.
const HEADS = [
  { ink: "var(--aa-h)", way: -1, end: 66, share: 78, asks: 12, side: -8 },
  { ink: "var(--aa-d)", way: 1, end: 116, share: 110, asks: HEIGHT - 4, side: 1 },
];
const FOUND = 50; // hundredths: with less, a head found nothing
const [FLOOR, TALL, OVER] = [76, 42, 13]; // where bars stand, the height of one whole, and a way over all of them

export default {
  render({ model, el }) {
    const {
      words,
      endings,
      places,
      weights,
      right,
      wrong,
      query,
      asks,
      gives,
      names,
      kinds,
      merge,
      causal,
    } = model.get("data");
    const now = { ending: 0, query, transposed: true };
    const same = (rows) => String(rows[0][now.query]) === String(rows[1][now.query]);
    const look = curves(words, places, asks, causal, (index) => ((now.query = index), show()));
    const gets = bars(places, names);
    const choices = endings.map((word, index) =>
      button(word === "…" ? "nothing yet" : word, () => ((now.ending = index), show())),
    );
    const tick = element("input", {
      type: "checkbox",
      checked: true,
      autocomplete: "off",
      "aria-label": "heads.transpose(0, 1).reshape(n, h * d)",
    });
    tick.addEventListener("change", () => ((now.transposed = tick.checked), show()));
    const cut = element("span", {}, ".transpose(0, 1)");
    const code = element("code", {}, "heads", cut, ".reshape(n, h * d)");
    const line = element("label", { class: "aa-tick-line" }, tick, code);
    const said = readout();

    // Where what a head found for a word stands: the word that has it, and the side.
    function at(word, head) {
      const flat = head * words.length + word;
      return now.transposed ? [word, head] : [Math.floor(flat / HEADS.length), flat % HEADS.length];
    }

    function show() {
      const all = [...words.slice(0, -1), endings[now.ending]];
      const found = (now.transposed ? right : wrong)[now.ending];
      choices.forEach((choice, index) =>
        choice.setAttribute("aria-pressed", String(index === now.ending)),
      );
      look.show(all, weights[now.ending], now.query, gives[now.ending]);
      look.tell(words[query], meant(found[query]), kinds);
      gets.show(all, found, now.query, now.transposed, at);
      cut.classList.toggle("aa-left-out", !now.transposed);
      said.replaceChildren(...(now.transposed ? tell(all, found) : slip(all, found)));
    }

    // What each head found for the word that asks, and what follows from both.
    function tell(all, found) {
      const rows = weights[now.ending].map((head) => head[now.query]);
      const numbers = found[now.query].map(number);
      const word = `“${all[now.query]}”`;
      // A word without a quality has the query (0, 0).
      if (rows.every(even))
        return [
          `${word} asks nothing, so it looks ${causal ? "alike at all that it sees" : "everywhere alike"}: `,
          numbers[0],
          ", ",
          numbers[1],
          ".",
        ];
      const lines = rows.map((row, head) => {
        const arrives = row.map((share, j) => share * gives[now.ending][j]);
        const most = all[arrives.indexOf(Math.max(...arrives))];
        const finds = found[now.query][head] < FOUND ? "gets little" : `gets most from “${most}”`;
        return [`Head ${head + 1} ${finds}: `, numbers[head], ". "];
      });
      if (now.query !== query) return lines.flat();
      const head = meant(found[query]);
      const means = kinds[head]
        ? `means the ${names[head]}, the ${kinds[head]}`
        : "cannot tell yet";
      return [...lines.flat(), `So ${word} ${means}.`];
    }

    // Without the transpose two neighbours of one head share a row.
    function slip(all, found) {
      const word = `“${all[now.query]}”`;
      const flat = HEADS.length * now.query;
      const from = Math.floor(flat / words.length);
      // At either end of the sentence, one number stays where it was.
      const gone = HEADS.map((_, head) => head).filter(
        (head) => String(at(now.query, head)) !== String([now.query, head]),
      );
      const to = gone.map((head) => `“${all[at(now.query, head)[0]]}”`).join(" and ");
      const of = gone.map((head) => `“${all[(flat + head) % words.length]}”`).join(" and ");
      const parts = gone.map((head) => ink(from, hundredth(found[now.query][head])));
      const blind = now.ending < 2 && same(wrong) && !same(right);
      return [
        element("strong", { class: "aa-silent" }, "No error. Same shape."),
        gone.length > 1
          ? ` The two numbers of ${word} are now at ${to}. In their place: `
          : ` One number of ${word} is now at ${to}. In its place: `,
        `what head ${from + 1} found for ${of}, `,
        ...parts.flatMap((part, index) => (index ? [" and ", part] : [part])),
        blind ? `, whether ${endings[0]} or ${endings[1]}.` : ".",
      ];
    }

    const number = (part, head) => ink(head, `${hundredth(part)} ${names[head]}`);

    el.append(
      element("div", { class: "aa-controls aa-endings" }, "it was", ...choices),
      look.root,
      ...(merge ? [line] : []),
      gets.root,
      said,
    );
    show();
  },
};

const ink = (head, text) => element("b", { style: `color: ${HEADS[head].ink}` }, text);
const hundredth = (number) => (number / 100).toFixed(2);
const even = (row) => row.every((share) => !share || share === row[0]); // 0: a later word, under a causal mask
// Which head found it; none, where that head found too little.
const meant = (pair) => pair.findIndex((part) => part >= FOUND && part === Math.max(...pair));
const written = (row, at) => (even(row) ? `1/${row.filter(Boolean).length}` : hundredth(row[at]));

// The sentence once, the curves of the first head above it, those of the second below; the wider, the more arrives.
function curves(words, places, asks, causal, ask) {
  const paths = HEADS.map(({ ink }) => words.map(() => svg("path", { stroke: ink })));
  const names = places.map((x) => svg("text", { x, y: 94 }));
  const shares = HEADS.map(({ share }) =>
    places.map((x) => svg("text", { class: "aa-share", x, y: share })),
  );
  const small = { "font-size": 10, "text-anchor": "start", fill: "var(--aa-quiet)" };
  const nothing = HEADS.map(({ share }) =>
    places.map((x) => svg("text", { class: "aa-gives", x: x + 15, y: share, ...small })),
  );
  const askers = places.map((x, j) => {
    const near = [x, places[j - 1], places[j + 1]].map((other, k) =>
      k ? Math.abs(other - x) / 2 : x,
    );
    const half = Math.min(...near.filter((room) => room >= 0), WIDTH - x) - 1;
    const box = { x: x - half, y: 58, width: 2 * half, height: 62, fill: "transparent" };
    const press = { class: "aa-ask", role: "button", tabindex: 0 };
    const made = svg("g", press, svg("rect", { ...box, rx: 3 }), names[j]);
    made.addEventListener("mousedown", (event) => event.preventDefault()); // the frame is for keys
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
  const end = { x: WIDTH - 2, y: 17, "font-size": 19, "font-weight": "bold", "text-anchor": "end" };
  const answer = svg("text", { ...end, "aria-hidden": "true" });
  const drawn = svg("g", { fill: "none" }, ...paths.flat());
  const texts = [...shares.flat(), ...nothing.flat(), ...questions, answer];
  const root = canvas("aa-look", HEIGHT, "group", drawn, ...texts, ...askers);
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
        path.style.strokeWidth = 0.4 + 0.08 * row[j] * gives[j];
        path.style.strokeOpacity = causal && j > query ? 0 : gives[j] ? 0.9 : 0.2;
        shares[head][j].textContent = row[j] < LEAST ? "" : written(row, j);
        shares[head][j].setAttribute("fill", gives[j] ? HEADS[head].ink : "var(--aa-quiet)");
        nothing[head][j].textContent = row[j] >= MUCH && !gives[j] ? "gives 0" : "";
      });
      return all.map((word, j) => `${word} ${written(row, j)}`).join(", ");
    });
    const label = `The shares of “${all[query]}”, by head 1: ${said[0]}; by head 2: ${said[1]}.`;
    root.setAttribute("aria-label", label);
  };
  const tell = (word, head, kinds) => {
    answer.textContent = `${word} → ${kinds[head] ?? "?"}`;
    answer.setAttribute("fill", HEADS[head]?.ink ?? "currentColor");
  };
  return { root, show, tell };
}

// What each word gets: two bars over each. A bar is what one head found for one word, and moves with it.
function bars(places, about) {
  const names = places.map((x) => svg("text", { x, y: FLOOR + 13, "font-size": 11 }));
  const made = HEADS.map(({ ink }) => places.map(() => svg("rect", { width: 7, fill: ink })));
  const legend = HEADS.map(({ ink }) => svg("tspan", { fill: ink, dx: 5 }));
  const title = { x: 2, y: 11, "font-size": 12.4, "text-anchor": "start" };
  const what = svg("tspan");
  const head = svg("text", title, what, legend[0], ",", legend[1]);
  const ways = HEADS.map(({ ink }) => svg("path", { class: "aa-way", stroke: ink, fill: "none" }));
  const bars = made.flat();
  const root = canvas("aa-gets", FLOOR + 18, "img", head, ...bars, ...ways, ...names);
  const left = (word, side) => places[word] + HEADS[side].side;
  const top = (part) => FLOOR - (Math.min(part, 100) * TALL) / 100;
  const show = (all, found, query, transposed, at) => {
    what.textContent = transposed ? "each word gets:" : "without the transpose:";
    HEADS.forEach((_, head) => {
      legend[head].textContent = transposed ? about[head] : `from head ${head + 1}`;
      made[head].forEach((bar, word) => {
        const [row, side] = at(word, head);
        const y = top(found[row][side]);
        const now = { x: left(row, side), y, height: FLOOR - y };
        for (const [name, value] of Object.entries(now)) bar.style[name] = `${value}px`;
      });
      const [row, side] = at(query, head);
      const y = top(found[row][side]);
      const over = top(found[query][head]);
      ways[head].setAttribute("d", moved(left(query, head), left(row, side), y, over));
      ways[head].classList.toggle("aa-gone", row === query && side === head);
    });
    all.forEach((word, j) => {
      names[j].textContent = word;
      names[j].setAttribute("font-weight", j === query ? "bold" : "normal");
    });
    const said = all.map((word, j) => `${word} ${found[j].map(hundredth).join(" and ")}`);
    const of = legend.map((name) => name.textContent).join(", ");
    root.setAttribute("aria-label", `${what.textContent} ${of}: ${said.join(", ")}.`);
  };
  return { root, show };
}

// Where a bar stood, as far as it is seen over the one that stands there now, and an arrow to where it stands.
function moved(from, to, y, now) {
  const frame = y < now ? `M${from} ${now}V${y}h7V${now}` : "";
  const [a, b, start, end] = [from + 3.5, to + 3.5, Math.min(y, now) - 3, y - 3];
  const over = Math.abs(to - from) > 60 ? OVER : start - 11;
  return `${frame}M${a} ${start}C${a} ${over} ${b} ${over} ${b} ${end}m-3-4l3 4l3-4`;
}

function canvas(name, height, role, ...parts) {
  const view = { class: name, viewBox: `0 0 ${WIDTH} ${height}`, role, fill: "currentColor" };
  return svg("svg", { ...view, "font-size": 13, "text-anchor": "middle" }, ...parts);
}

// From one word to another, the higher the farther they are; to itself, a small loop.
function curve(a, b, y, way) {
  const far = Math.abs(a - b);
  const [wide, high] = far ? [0, 3.4 * Math.sqrt(far)] : [9, 22];
  const top = y + way * high;
  return `M${a - wide / 3} ${y}C${a - wide} ${top} ${b + wide} ${top} ${b + wide / 3} ${y}`;
}
