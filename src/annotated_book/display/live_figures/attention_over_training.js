// Attention weights while a model learns: one map, and a slider over the steps of training.
//
// steps: the step at which each map was taken
// maps: a map per step, of rows of weights in hundredths, a row per query
// queries, keys: the words beside the rows and above the columns
// readings: what else was measured, as {name: [text per step]}
import { button, calm, element, readout, slider, svg } from "./host/figure.js";

const CELL = 34;
const LEFT = 74;
const TOP = 46;
const PAUSE = 300; // milliseconds between two steps when playing

export default {
  render({ model, el }) {
    const { steps, maps, queries, keys, readings } = model.get("data");
    const drawing = draw(queries, keys);
    const said = readout();
    let timer = null;

    const show = (index) => {
      drawing.show(
        maps[index],
        `Attention at step ${steps[index]}. ${sayRows(maps[index], queries, keys)}`,
      );
      const values = Object.entries(readings).map(([name, texts]) => `${name} ${texts[index]}`);
      said.textContent = [`step ${steps[index]}`, ...values].join(" · ");
    };
    const stop = () => {
      clearInterval(timer);
      timer = null;
      play.textContent = "Play";
      said.setAttribute("aria-live", "polite");
    };
    const last = steps.length - 1;
    const time = slider({
      label: "training step",
      max: last,
      value: last, // what was learned; the way there is one press away
      say: (index) => String(steps[index]),
      move: (index) => {
        stop();
        show(index);
      },
    });
    const play = button("Play", () => {
      if (timer !== null) return stop();
      const at = Number(time.input.value);
      let index = at === last ? -1 : at;
      play.textContent = "Pause";
      said.setAttribute("aria-live", "off"); // the last step is announced, not each
      const next = () => {
        index += 1;
        if (index === last) stop();
        time.show(index);
        show(index);
      };
      timer = setInterval(next, PAUSE);
      next();
    });

    // Who wants no movement steps by hand.
    const controls = element(
      "div",
      { class: "aa-controls" },
      time.label,
      ...(calm() ? [] : [play]),
    );
    el.append(drawing.root, controls, said);
    show(last);
    return () => clearInterval(timer);
  },
};

function draw(queries, keys) {
  const width = LEFT + CELL * keys.length + 2;
  const height = TOP + CELL * queries.length + 2;
  const root = svg("svg", {
    viewBox: `0 0 ${width} ${height}`,
    width,
    role: "img",
    fill: "currentColor",
  });
  root.style.minWidth = `${0.72 * width}px`;
  root.append(
    name("keys (m)", LEFT + (CELL * keys.length) / 2, 14, "m"),
    name("queries (n)", 14, TOP + (CELL * queries.length) / 2, "n", -90),
    ...keys.map((word, j) => name(word, LEFT + CELL * (j + 0.5), TOP - 8, "m")),
    ...queries.map((word, i) => name(word, LEFT - 16, TOP + CELL * (i + 0.5) + 4, "n")),
  );
  const cells = queries.map((_, i) =>
    keys.map((_, j) => {
      const [x, y] = [LEFT + CELL * j, TOP + CELL * i];
      const box = svg("rect", { x, y, width: CELL, height: CELL, class: "aa-weight" });
      const number = svg("text", {
        x: x + CELL / 2,
        y: y + CELL / 2 + 4,
        "text-anchor": "middle",
        "font-size": 11,
      });
      root.append(box, number);
      return { box, number };
    }),
  );
  const show = (map, label) => {
    root.setAttribute("aria-label", label);
    cells.forEach((row, i) =>
      row.forEach(({ box, number }, j) => {
        box.style.fillOpacity = 0.006 * map[i][j];
        number.textContent = write(map[i][j]);
      }),
    );
  };
  return { root, show };
}

// In a cell there is no room for small weights, nor for the zero before the point.
function write(hundredths) {
  if (hundredths < 10) return "";
  return hundredths < 100 ? `.${hundredths}` : "1";
}

function name(text, x, y, letter, turn = 0) {
  const made = svg(
    "text",
    { x, y, "text-anchor": "middle", "font-size": 12, fill: `var(--aa-${letter})` },
    text,
  );
  if (turn) made.setAttribute("transform", `rotate(${turn} ${x} ${y})`);
  return made;
}

function sayRows(map, queries, keys) {
  const rows = map.map((row, i) => {
    const most = Math.max(...row);
    return `${queries[i]} looks at ${keys[row.indexOf(most)]} (${(most / 100).toFixed(2)})`;
  });
  return `${rows.join("; ")}.`;
}
