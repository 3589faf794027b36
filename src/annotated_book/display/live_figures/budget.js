// Calls one after the other while a prompt is read in chunks: what each budget of tokens makes of it.
//
// budgets: of each fixed lane, the most tokens that a call takes; prompt: those of the new prompt
// writers, tokens: how many sequences write meanwhile, and what each has kept
// gpu: as in call_bytes.py
//
// A test compares what is said with Python's.
import { call } from "./call_bytes.js";
import { element, readout, slider, svg } from "./host/figure.js";
import { label } from "./host/panel.js";

const [WIDTH, ROW, HIGH] = [400, 62, 22];

/** Give the milliseconds of each call until the whole prompt is read. */
export function served(gpu, most, prompt, writers, tokens) {
  const calls = [];
  for (let read = 0, chunk; read < prompt; read += chunk) {
    chunk = Math.min(most - writers, prompt - read);
    const found = call(gpu, writers, tokens + calls.length, chunk, 16);
    const reading = found.reading + (1000 * read * gpu.kept) / gpu.bandwidth;
    const computing = found.computing + (1000 * chunk * read * gpu.pair) / gpu.arithmetic;
    calls.push(Math.max(reading, computing));
  }
  return calls;
}

const sum = (all) => all.reduce((a, b) => a + b, 0);
const number = (x, digits = 0) => x.toFixed(digits).replace(/\B(?=(\d{3})+(?!\d))/g, ",");
const named = (most, calls) =>
  `${number(most)} tokens: B waits ${number(Math.max(...calls), 1)} ms, C ${number(sum(calls))} ms`;

export default {
  render({ model, el }) {
    const { budgets, gpu, prompt, writers, tokens } = model.get("data");
    const now = { most: budgets[1], prompt };
    const lanes = [...budgets, 0];
    const high = ROW * lanes.length + 26;
    const frame = { viewBox: `0 0 ${WIDTH} ${high}`, role: "img", fill: "currentColor" };
    const [root, status] = [svg("svg", frame), readout()];
    const later = call(gpu, writers + 1, tokens, 0, 16).reading;
    const show = () => {
      const all = lanes.map((most) => most || now.most);
      const made = all.map((most) => served(gpu, most, now.prompt, writers, tokens));
      const end = 1.1 * Math.max(...made.map(sum));
      const drawn = made.map((calls, i) => {
        const text = (lanes[i] ? "" : "Yours: ") + named(all[i], calls);
        return lane(calls, WIDTH / end, later, i * ROW, text, !lanes[i]);
      });
      const step = [10, 20, 50, 100, 200, 500, 1000, 2000, 5000].find((x) => end / x < 6);
      const axis = Array.from({ length: Math.floor(end / step) + 1 }, (_, i) => {
        const text = `${number(i * step)}${i ? "" : " ms"}`;
        const look = { "text-anchor": i ? "middle" : "start", "font-size": 11 };
        return label(text, (WIDTH * i * step) / end, high - 6, look);
      });
      root.replaceChildren(...drawn, ...axis);
      const calls = made.at(-1);
      status.textContent =
        `A prompt of ${number(now.prompt)} tokens, read in ${number(calls.length)} ` +
        `call${calls.length > 1 ? "s" : ""}. B waits up to ${number(Math.max(...calls), 1)} ms for ` +
        `a token, and C ${number(sum(calls))} ms for its first.`;
      const told = all.map((most, i) => named(most, made[i])).join("; ");
      root.setAttribute("aria-label", `A prompt of ${number(now.prompt)} tokens. ${told}.`);
    };
    const knob = (name, text, min, max) => {
      const say = (power) => number(2 ** power);
      const move = (power) => ((now[name] = 2 ** power), show());
      return slider({ label: text, min, max, value: Math.log2(now[name]), say, move }).label;
    };
    el.append(
      element("div", { class: "aa-cache" }, root),
      element(
        "div",
        { class: "aa-controls aa-grid" },
        knob("most", "token budget", 7, 14),
        knob("prompt", "C's prompt", 8, 15),
      ),
      status,
    );
    show();
  },
};

/** Draw one lane: what is said of it, the time until C's first token, and B's tokens. */
function lane(calls, unit, later, top, text, own) {
  let at = 0;
  const ends = calls.map((spent) => (at += spent) * unit);
  const first = at * unit;
  while ((at += later) * unit < WIDTH) ends.push(at * unit);
  const [y, path] = [top + 20, ends.map((x) => `M${x.toFixed(1)} ${top + 20}v${HIGH}`).join("")];
  const look = { "text-anchor": "start", "font-weight": own ? 700 : 400 };
  return svg(
    "g",
    { "aria-hidden": true },
    label(text, 0, top + 14, look),
    svg("rect", { x: 0, y, width: first, height: HIGH, fill: "var(--aa-h)", "fill-opacity": 0.3 }),
    svg("path", { d: path, stroke: "var(--aa-n)", "stroke-width": 1.4 }),
  );
}
