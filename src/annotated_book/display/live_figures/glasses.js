// Glasses: the jugs of two words stand over the glasses of one head or two, and pour when the reader says so.
//
// picture: the drawing, as it stands without scripts; said: what is in the glasses then
// Until then it is dry: no streams, empty glasses, no numbers in them (live.css).
import { button, element, readout, svg } from "./host/figure.js";

export default {
  render({ model, el }) {
    const { picture, said } = model.get("data");
    const board = element("div", { class: "aa-dry" });
    board.innerHTML = picture;
    const words = readout();
    const pour = button("pour", () => {
      const dry = board.classList.toggle("aa-dry");
      pour.textContent = dry ? "pour" : "empty the glasses";
      words.textContent = dry ? "The glasses are empty." : said;
    });
    words.textContent = "The glasses are empty.";
    el.append(board, element("div", { class: "aa-controls" }, pour), words);
  },
};

/** Draw a glass about a place: red where it is warm, blue where it is cold, grey where lukewarm. */
export function glass(x, y, warmth, stroke) {
  const hue = Math.abs(warmth) < 0.1 ? "#808080" : warmth > 0 ? "#d0382b" : "#2a7fd4";
  const look = { fill: hue, "fill-opacity": 0.35 + 0.16 * Math.min(Math.abs(warmth), 4) };
  const ground = { fill: "var(--md-default-bg-color, var(--jp-layout-color0, Canvas))" };
  const [edge, full] = ["M-9 -11L-7 11H7L9 -11", "M-8.3 -5L-7 11H7L8.3 -5Z"];
  const paths = [svg("path", { d: `${edge}Z`, ...ground }), svg("path", { d: full, ...look })];
  paths.push(svg("path", { d: edge, fill: "none", stroke, "stroke-width": 2 }));
  return svg("g", { transform: `translate(${x} ${y})` }, ...paths);
}
