// What one call of a model reads, and what it computes: whichever takes longer is its time.
//
// loads: of each fixed bar the sequences, the tokens of each, those of a prompt beside them,
//   and the bits of a kept number
// gpu: bytes, FLOPs and what there is of both in a second, as in call_bytes.py
//
// A test compares what a call takes with Python's.
import { element, readout, slider, svg } from "./host/figure.js";
import { label } from "./host/panel.js";

const [WIDTH, ROW, HIGH] = [400, 68, 20];

/** Give a call's bytes, its milliseconds of reading and of computing, and tokens a second. */
export function call(gpu, sequences, tokens, chunk, bits) {
  const caches = ((sequences * tokens + chunk) * gpu.kept * bits) / 16;
  const bytes = gpu.weights + caches;
  const reading = (1000 * bytes) / gpu.bandwidth;
  const prompt = chunk * (gpu.flops - gpu.output + ((chunk + 1) / 2) * gpu.pair);
  const flops = sequences * (gpu.flops + tokens * gpu.pair) + prompt;
  const computing = (1000 * flops) / gpu.arithmetic;
  const rate = (1000 * sequences) / Math.max(reading, computing);
  return { bytes, reading, computing, rate, fits: gpu.stored + caches <= gpu.memory };
}

const number = (x, digits = 0) => x.toFixed(digits).replace(/\B(?=(\d{3})+(?!\d))/g, ",");

/** Name a load. */
export const named = (sequences, tokens, chunk, bits) =>
  `${number(sequences)} sequence${sequences > 1 ? "s" : ""} of ${number(tokens)} tokens` +
  (chunk ? ` + ${number(chunk)} of a prompt` : "") +
  (bits < 16 ? `, ${bits} bits` : "");

/** Say what a call takes, and what it brings. */
export function said({ bytes, reading, computing, rate, fits }) {
  const short = fits ? "" : " (does not fit)";
  const longest = number(Math.max(reading, computing), 1);
  return `${number(bytes / 1e9)} GB, ${longest} ms: ${number(rate)} tokens/s${short}`;
}

/** Name what takes longer. */
const limit = ({ reading, computing }) => (reading < computing ? "arithmetic" : "bandwidth");

export default {
  render({ model, el }) {
    const { loads, gpu } = model.get("data");
    const now = [32, 1024, 0, 16]; // sequences, tokens of each, of a prompt, bits
    const high = ROW * (loads.length + 1) + 20;
    const frame = { viewBox: `0 0 ${WIDTH} ${high}`, role: "img", fill: "currentColor" };
    const [root, status] = [svg("svg", frame), readout()];
    const fixed = loads.map((load, i) => bar(gpu, load, i * ROW));
    const axis = [0, 1, 2, 3, 4].map((i) =>
      label(`${(gpu.memory * i) / 4e9}${i === 4 ? " GB" : ""}`, (WIDTH * i) / 4, high - 4, {
        "text-anchor": ["start", "middle", "middle", "middle", "end"][i],
        "font-size": 11,
      }),
    );
    const show = () => {
      root.replaceChildren(...fixed, bar(gpu, now, loads.length * ROW, "Yours: "), ...axis);
      const found = call(gpu, ...now);
      const each = `${number(found.rate / now[0])} for each`;
      status.textContent =
        `${named(...now)}: reading takes ${number(found.reading, 1)} ms, arithmetic ` +
        `${number(found.computing, 1)} ms, so ${limit(found)} is the limit. ` +
        `${number(found.rate)} tokens a second, ${each}${found.fits ? "" : ", if it fitted"}.`;
      const all = [...loads, now].map((load) => `${named(...load)}: ${said(call(gpu, ...load))}`);
      root.setAttribute("aria-label", `${all.join("; ")}.`);
      for (const [bits, mark] of marks) mark.setAttribute("aria-pressed", bits === now[3]);
    };
    const marks = [16, 8].map((bits) => {
      const attributes = { type: "button", class: "aa-mark" };
      const mark = element("button", attributes, `${bits} bits`);
      mark.addEventListener("click", () => ((now[3] = bits), show()));
      return [bits, mark];
    });
    const knob = (place, text, min, max, none) => {
      const many = (power) => (power === none ? 0 : 2 ** power);
      const [value, say] = [
        now[place] ? Math.log2(now[place]) : none,
        (power) => number(many(power)),
      ];
      const move = (power) => ((now[place] = many(power)), show());
      return slider({ label: text, min, max, value, say, move }).label;
    };
    const buttons = element(
      "div",
      { class: "aa-marks", role: "group", "aria-label": "bits of a kept number" },
      element("span", { style: "margin-right: 0.6em" }, "caches in"),
      ...marks.map(([, mark]) => mark),
    );
    const knobs = [
      knob(0, "sequences", 0, 11),
      knob(1, "tokens of each", 7, 17),
      knob(2, "tokens of a prompt", 5, 13, 5),
    ];
    el.append(
      element("div", { class: "aa-cache" }, root),
      element("div", { class: "aa-controls aa-grid" }, ...knobs),
      element("div", { class: "aa-controls" }, buttons),
      status,
    );
    show();
  },
};

/** Draw one load: its name, the memory, what is read of it, and the arithmetic beneath. */
function bar(gpu, load, top, before = "") {
  const found = call(gpu, ...load);
  const place = (bytes) => WIDTH * Math.min(1, bytes / gpu.memory);
  const [weights, read] = [gpu.weights, found.bytes].map(place);
  const works = place((found.computing * gpu.bandwidth) / 1000);
  const part = (x, width, y, height, ink, opacity) =>
    svg("rect", { x, width, y, height, fill: `var(--aa-${ink})`, "fill-opacity": opacity });
  const text = { "text-anchor": "start" };
  return svg(
    "g",
    { "aria-hidden": true },
    label(before + named(...load), 0, top + 13, { ...text, "font-weight": 700 }),
    part(0, WIDTH, top + 18, HIGH, "b", 0.15),
    part(0, weights, top + 18, HIGH, "n", 0.8),
    part(weights, read - weights, top + 18, HIGH, "m", 0.8),
    part(0, works, top + 18 + HIGH, 4, "h", 1),
    label(said(found), 0, top + 55, text),
  );
}
