// Published models: a strip of layers each, and the block of the layer that is chosen.
//
// kinds: of a layer, by a letter: how it is called, its colour, and how full
// models: of each its name, a letter for each layer, under each letter the parts of the attention, those of
//   the feed-forward part, all with a semicolon between them, and how many layers have the plain one
import { button, element, readout, slider } from "./host/figure.js";

// The parts of a block, and whether the first model lacks each.
function parts([, layers, attention, feedForward, plain], layer, first) {
  const split = (text) => text.split("; ");
  const made = split(layer < plain ? first[3] : feedForward);
  const known = [...Object.values(first[2]).flatMap(split), ...split(first[3])].map(kind);
  const all = ["norm", ...split(attention[layers[layer]]), "+", "norm", ...made, "+"];
  return all.map((part) => [part, part !== "+" && part !== "norm" && !known.includes(kind(part))]);
}

// "GQA, 4 to 1" and "GQA, 2 to 1" are one part.
const kind = (part) => part.replace(/, .*/, "");

export default {
  render({ model, el }) {
    const { kinds, models } = model.get("data");
    const most = Math.max(...models.map(([, layers]) => layers.length));
    let [chosen, layer] = [0, 0];
    const said = readout();
    const block = element("ol", { class: "aa-block" });
    const shade = ([, ink, full]) =>
      `background: color-mix(in srgb, var(--aa-${ink}) ${full}%, transparent)`;
    const rows = models.map(([name, layers], i) => {
      const pick = button(name.split(",")[0], () => choose(i, 0));
      const cells = [...layers].map((letter) => element("i", { style: shade(kinds[letter]) }));
      const strip = element("div", { class: "aa-layers", "aria-hidden": "true" }, ...cells);
      strip.style.width = `${(100 * layers.length) / most}%`;
      strip.addEventListener("click", ({ clientX }) => {
        const { left, width } = strip.getBoundingClientRect();
        const at = Math.floor(((clientX - left) / width) * layers.length);
        choose(i, Math.min(Math.max(at, 0), layers.length - 1));
      });
      return { pick, cells, row: element("div", {}, pick, element("div", {}, strip)) };
    });
    const say = (value) => `${value + 1} of ${models[chosen][1].length}`;
    const which = slider({ label: "layer", max: most - 1, say, move: (to) => choose(chosen, to) });
    const used = Object.keys(kinds).filter((letter) =>
      models.some(([, all]) => all.includes(letter)),
    );
    const legend = used.map((letter) =>
      element("span", {}, element("i", { style: shade(kinds[letter]) }), kinds[letter][0]),
    );
    const choose = (to, at) => {
      [chosen, layer] = [to, at];
      const [name, layers] = models[chosen];
      which.input.max = layers.length - 1;
      which.show(layer);
      rows.forEach(({ pick, cells }, i) => {
        pick.setAttribute("aria-pressed", String(i === chosen));
        cells.forEach((cell, j) => cell.classList.toggle("aa-on", i === chosen && j === layer));
      });
      const made = parts(models[chosen], layer, models[0]);
      block.replaceChildren(
        ...made.map(([part, apart]) =>
          element("li", { class: part === "+" ? "aa-sum" : apart ? "aa-apart" : false }, part),
        ),
      );
      const apart = [...new Set(made.filter(([, is]) => is).map(([part]) => part))];
      const lacks = apart.length ? `Not in ${models[0][0]}: ${apart.join("; ")}.` : "";
      const plan = chosen ? lacks || "The parts of the first." : "Choose another.";
      said.textContent = `${name}, layer ${layer + 1} of ${layers.length}. ${plan}`;
    };
    const list = element("div", { class: "aa-models" }, ...rows.map(({ row }) => row));
    const knobs = element("div", { class: "aa-knobs" }, list, which.label);
    knobs.append(element("p", { class: "aa-legend" }, ...legend));
    el.append(element("div", { class: "aa-plans" }, knobs, block), said);
    choose(0, 0);
  },
};
