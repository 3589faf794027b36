// The calculator: what a Transformer costs at sizes of the reader's choice.
//
// presets: the sizes of published models by name, with the names that Python gives them
// preset, length, batch, bytes: what the static table shows, and where the sliders begin
//
// The formulas are those of counting/formulas.py, in whole numbers of any size, and a test compares every
// cell and note with Python's.
import { element, readout, select, slider } from "./host/figure.js";

const PARTS = ["projections", "scores and mix", "feed-forward", "norms", "embeddings, output"];
const HEADER = ["", "parameters", "share", "forward", "share", "kept", "kept, fused"];

const sum = (counts) => counts.reduce((a, b) => a + b, 0n);
const thousands = (number) => String(number).replace(/\B(?=(\d{3})+$)/g, ",");

/** Count parameters, FLOPs forward, numbers kept and the FLOPs of a step, by part; and the cache. */
export function count(model, length, batch) {
  const [n, b, e, h, f] = [length, batch, model.embed_dim, model.num_heads, model.feedforward].map(
    BigInt,
  );
  const [plain, cross, vocabulary] = [model.layers, model.decoder_layers, model.vocabulary].map(
    BigInt,
  );
  const scored = model.output === "none" ? 0n : 1n;
  const between = model.activation === "gelu" ? 2n : 1n;
  const [attentions, networks] = [plain + 2n * cross, plain + cross];
  const norms = 2n * plain + 3n * cross + BigInt(model.norms);
  const shared = cross > 1n ? cross - 1n : 0n;
  const running = cross || plain;
  const kept = (fused) => [
    b * n * e * (5n * networks + 6n * cross - shared),
    attentions * b * h * n * (fused ? 1n : n),
    networks * b * n * (e + between * f),
    norms * b * n * (e + 2n),
    scored * b * n * e,
  ];
  return {
    parameters: [
      attentions * 4n * (e * e + e),
      0n,
      networks * (2n * e * f + f + e),
      norms * 2n * e,
      (vocabulary + BigInt(model.positions)) * e,
    ],
    flops: [
      attentions * 8n * b * n * e * e,
      attentions * 4n * b * n * n * e,
      networks * 4n * b * n * e * f,
      0n,
      scored * 2n * b * n * e * vocabulary,
    ],
    kept: kept(false),
    fused: kept(true),
    step: [
      running * 8n * b * e * e + cross * 4n * b * e * e,
      (running + cross) * 4n * b * n * e,
      running * 4n * b * e * f,
      0n,
      scored * 2n * b * e * vocabulary,
    ],
    cache: 2n * b * n * e * (2n * cross || plain),
  };
}

/** Write a whole number with three digits and a decimal prefix, rounded half up. */
export function short(number, unit = "") {
  const digits = String(number).length - 1;
  const power = Math.floor(digits / 3);
  if (power === 0) return `${number} ${unit}`.trimEnd();
  const places = 2 - (digits % 3);
  const [ten, thousand] = [10n ** BigInt(places), 1000n ** BigInt(power)];
  const scaled = (2n * number * ten + thousand) / (2n * thousand);
  if (scaled === 1000n * ten) return short(1000n ** BigInt(power + 1), unit);
  const fraction = places ? `.${String(scaled % ten).padStart(places, "0")}` : "";
  return `${scaled / ten}${fraction} ${"_kMGTPEZYRQ"[power]}${unit}`;
}

/** Write a part as a percentage, rounded half up. */
export const share = (part, whole) => `${(200n * part + whole) / (2n * whole)} %`;

/** Write the counts as the rows of the table, the header first and the total last. */
export function rows(model, length, batch, bytes) {
  const { parameters, flops, kept, fused } = count(model, length, batch);
  const totals = [parameters, flops, kept, fused].map(sum);
  const row = (part, p, f, k, u) => [
    part,
    short(p),
    share(p, totals[0]),
    short(f, "FLOP"),
    share(f, totals[1]),
    short(k * BigInt(bytes), "B"),
    short(u * BigInt(bytes), "B"),
  ];
  const body = PARTS.map((part, i) => row(part, parameters[i], flops[i], kept[i], fused[i]));
  return [HEADER, ...body, row("total", ...totals)];
}

/** Write what the table does not hold, a sentence each. */
export function notes(model, length, batch, bytes) {
  const { parameters, flops, step, cache } = count(model, length, batch);
  const [total, width] = [sum(parameters), BigInt(bytes)];
  const found = [
    `${thousands(total)} parameters take ${short(total * width, "B")}; with gradients and Adam's two ` +
      `averages ${short(4n * total * width, "B")}.`,
    `Forward and backward: ${short(3n * sum(flops), "FLOP")}.`,
    `Scores and mix take ${share(flops[1], flops[0])} of the projections' FLOPs, and pass ` +
      `them beyond length 2e = ${thousands(2 * model.embed_dim)}.`,
  ];
  if (model.output !== "none")
    found.push(
      `One more token, with a cache: ${short(sum(step), "FLOP")}; the cache holds ${short(cache * width, "B")}.`,
    );
  return found;
}

/** Give the numbers of heads that a width can be split into. */
export const divisors = (width) =>
  Array.from({ length: 128 }, (_, i) => i + 1).filter((h) => width % h === 0);

/** Give the place of the number in a list that is nearest by ratio. */
export function nearest(list, number) {
  const far = list.map((other) => Math.abs(Math.log(other / number)));
  return far.indexOf(Math.min(...far));
}

const powers = (least, most) =>
  Array.from({ length: most - least + 1 }, (_, i) => 2 ** (least + i));
const LENGTHS = powers(4, 17);
const BATCHES = powers(0, 10);
const WIDTHS = [
  64, 128, 256, 384, 512, 768, 1024, 1280, 1600, 2048, 3072, 4096, 5120, 8192, 12288, 16384,
];
const VOCABULARIES = [
  256, 1000, 4000, 8000, 16000, 30522, 32000, 37000, 50257, 64000, 128000, 256000,
];
const upTo = (most) => Array.from({ length: most + 1 }, (_, i) => i);

export default {
  render({ model, el }) {
    const { presets, preset, length, batch, bytes } = model.get("data");
    const now = { model: presets[preset], length, batch, bytes };
    const said = readout();
    const table = element("div", {
      class: "aa-scroll",
      tabindex: 0,
      role: "region",
      "aria-label": "costs by part",
    });
    const list = element("ul", { class: "aa-notes" });

    const show = () => {
      const size = [now.model, now.length, now.batch, now.bytes];
      const cells = rows(...size);
      table.replaceChildren(draw(cells));
      list.replaceChildren(...notes(...size).map((note) => element("li", {}, note)));
      const [, parameters, , forward, , kept, fused] = cells.at(-1);
      said.textContent = `${parameters} parameters · forward ${forward} · kept ${kept}, fused ${fused}`;
    };
    const change = (sizes) => {
      now.model = { ...now.model, ...sizes };
      choice.value = "";
      show();
    };

    const named = Object.keys(presets).map((name) => [name, name]);
    const choice = select([...named, ["", "your own"]], (name) => {
      if (!name) return;
      now.model = presets[name];
      for (const control of sliders) control.renew();
      show();
    });
    const widths = [
      [4, "float32"],
      [2, "bfloat16"],
    ];
    const numbers = select(widths, (size) => {
      now.bytes = Number(size);
      show();
    });
    numbers.value = bytes;

    const heads = choose(
      "heads h",
      () => divisors(now.model.embed_dim),
      () => now.model.num_heads,
      (h) => change({ num_heads: h }),
    );
    const sliders = [
      choose(
        "length n",
        () => LENGTHS,
        () => now.length,
        (n) => ((now.length = n), show()),
      ),
      choose(
        "batch b",
        () => BATCHES,
        () => now.batch,
        (b) => ((now.batch = b), show()),
      ),
      choose(
        "width e",
        () => WIDTHS,
        () => now.model.embed_dim,
        (e) => {
          const possible = divisors(e);
          const h = possible[nearest(possible, now.model.num_heads)];
          change({ embed_dim: e, feedforward: 4 * e, num_heads: h });
          heads.renew();
        },
      ),
      heads,
      choose(
        "layers",
        () => upTo(128).slice(1),
        () => now.model.layers,
        (layers) => change({ layers }),
      ),
      choose(
        "decoder layers",
        () => upTo(64),
        () => now.model.decoder_layers,
        (layers) => change({ decoder_layers: layers }),
      ),
      choose(
        "vocabulary",
        () => VOCABULARIES,
        () => now.model.vocabulary,
        (vocabulary) => change({ vocabulary }),
      ),
    ];
    choice.value = preset;
    el.append(
      element(
        "div",
        { class: "aa-controls" },
        element("label", { class: "aa-slider" }, element("span", {}, "sizes of"), choice),
        element("label", { class: "aa-slider" }, element("span", {}, "numbers are"), numbers),
      ),
      element("div", { class: "aa-controls aa-grid" }, ...sliders.map((control) => control.label)),
      said,
      table,
      list,
    );
    show();
  },
};

// A slider over the numbers of a list, which may change with the other sizes: `renew` looks again.
function choose(label, list, value, move) {
  const control = slider({
    label,
    max: list().length - 1,
    value: nearest(list(), value()),
    say: (index) => thousands(list()[index]),
    move: (index) => move(list()[index]),
  });
  const renew = () => {
    control.input.max = list().length - 1;
    control.show(list().indexOf(value()));
  };
  return { label: control.label, renew };
}

function draw([header, ...body]) {
  const head = (text) => element("th", { scope: "col" }, text);
  const row = ([part, ...cells]) =>
    element(
      "tr",
      {},
      element("th", { scope: "row" }, part),
      ...cells.map((cell) => element("td", {}, cell)),
    );
  return element(
    "table",
    { class: "aa-table" },
    element("thead", {}, element("tr", {}, element("td"), ...header.slice(1).map(head))),
    element("tbody", {}, ...body.map(row)),
  );
}
