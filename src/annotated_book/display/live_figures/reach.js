// Reach: layers of tokens, and the cone of those that the last output can depend on.
//
// tokens: how many there are; layers, window: where the sliders begin
//
// A test compares the cone with Python's.
import { element, readout, slider, svg } from "./host/figure.js";
import { label } from "./host/panel.js";

const [LEFT, STEP, HIGH, TOP, MOST] = [54, 20, 40, 10, 5];

/** Give the first lit token of each row, from the last output down to the tokens. */
export function cone(tokens, layers, window, everywhere) {
  const firsts = [tokens - 1];
  for (let layer = layers; layer > 0; layer--)
    firsts.push(layer === everywhere ? 0 : Math.max(0, firsts.at(-1) - window + 1));
  return firsts;
}

/** Say how many tokens are lit, and how many they could be in a longer text. */
export function told(tokens, layers, window, everywhere) {
  const lit = tokens - cone(tokens, layers, window, everywhere).at(-1);
  const most = (window - 1) * layers + 1;
  const what = `The last output can depend on ${lit} of ${tokens} tokens`;
  if (everywhere) return `${what}: layer ${everywhere} looks at all of them.`;
  return `${what}. Windows alone reach (${window} − 1) · ${layers} + 1 = ${most}.`;
}

export default {
  render({ model, el }) {
    const { tokens, layers, window } = model.get("data");
    const now = { layers, window, everywhere: 0 };
    const said = readout();
    const grid = drawing(tokens);
    const show = () => {
      const { layers, window, everywhere } = now;
      const text = told(tokens, layers, window, everywhere);
      grid.show(cone(tokens, layers, window, everywhere), window, layers - everywhere, text);
      said.textContent = text;
    };
    const knob = (name, text, min, max, say) =>
      slider({
        label: text,
        ...{ min, max, value: now[name], say },
        move: (value) => {
          now[name] = value;
          if (now.everywhere > now.layers) everywhere.show((now.everywhere = now.layers));
          show();
        },
      });
    const everywhere = knob("everywhere", "global layer", 0, MOST, (i) => (i ? String(i) : "none"));
    const knobs = [knob("window", "window", 1, 8), knob("layers", "layers", 1, MOST), everywhere];
    el.append(
      element("div", { class: "aa-cache" }, grid.root),
      element("div", { class: "aa-controls aa-grid" }, ...knobs.map(({ label }) => label)),
      said,
    );
    show();
  },
};

function drawing(tokens) {
  const [width, height] = [LEFT + tokens * STEP, TOP + MOST * HIGH + 20];
  const root = svg("svg", {
    viewBox: `0 0 ${width} ${height}`,
    role: "img",
    fill: "currentColor",
  });
  const lines = svg("path", { fill: "none", stroke: "var(--aa-h)", "stroke-opacity": 0.5 });
  const dots = svg("g");
  root.append(lines, dots);
  const x = (token) => LEFT + (token + 0.5) * STEP;
  return {
    root,
    show(firsts, window, whole, text) {
      const last = firsts.length - 1; // the row of the tokens; rows count from the last output
      const y = (row) => TOP + (row + MOST - last) * HIGH;
      const [seen, made] = [[], []];
      firsts.forEach((first, row) => {
        const name = row === last ? "tokens" : `layer ${last - row}`;
        made.push(label(name, LEFT - 6, y(row) + 4, { "text-anchor": "end" }));
        for (let i = 0; i < tokens; i++) {
          const ink = i < first ? { fill: "none", stroke: "#808080" } : { fill: "var(--aa-m)" };
          made.push(svg("circle", { cx: x(i), cy: y(row), r: i < first ? 4 : 6, ...ink }));
          if (i < first || row === last) continue;
          for (let j = row === whole ? 0 : Math.max(0, i - window + 1); j <= i; j++)
            seen.push(`M${x(i)} ${y(row)}L${x(j)} ${y(row + 1)}`);
        }
      });
      lines.setAttribute("d", seen.join(""));
      dots.replaceChildren(...made);
      root.setAttribute("aria-label", text);
    },
  };
}
