// The milliseconds of one call, as the reader writes it, and which part of it takes them.
//
// masks: of each its name, and how the class and the function are given it
// ways: of each whether it is the function, without weights, off the fast path, with the causal
//   flag; under each mask, if it takes it, the quartiles of its milliseconds, and those of each part
// parts: of each its name and its colour
// start: the mask to begin with
import { button, element, readout, select, svg } from "./host/figure.js";
import { label } from "./host/panel.js";

const [WIDE, LEFT, TOTAL, ROW] = [352, 92, 48, 19];
const START = { "text-anchor": "start" };

export default {
  render({ model, el }) {
    const { masks, ways, parts, start } = model.get("data");
    const now = { mask: start, function: false, plain: false, off: false, flag: false };
    const most = Math.max(...ways.flatMap((way) => way[4].map((times) => times?.[2] ?? 0)));
    const long = (milliseconds) => ((WIDE - LEFT - 50) * milliseconds) / most;
    const high = TOTAL + ROW * parts.length;
    const root = svg("svg", { viewBox: `0 0 ${WIDE} ${high}`, role: "img", fill: "currentColor" });
    root.style.maxWidth = `${1.5 * WIDE}px`;
    let before = null; // the parts before the last change
    const [code, said] = [element("code"), readout()];

    const find = () => {
      const wanted = ["function", "plain", "off", "flag"].map((name) => now[name]);
      if (now.function) wanted.fill(true, 1, 3).fill(false, 3);
      return ways.find((way) => wanted.every((flag, i) => flag === way[i]));
    };
    const change = (move) => {
      before = find()[5][now.mask];
      move();
      show();
    };
    const turn = (name, text) => {
      const made = button(text, () => change(() => (now[name] = !now[name])));
      return [name, made];
    };
    const knobs = [
      turn("plain", "need_weights=False"),
      turn("off", "fast path off"),
      turn("flag", "is_causal=True, too"),
      turn("function", "call the function"),
    ];
    const options = masks.map(([name], i) => [i, name]);
    const list = select(options, (value) => change(() => (now.mask = Number(value))));
    list.value = now.mask;

    const bar = (x, y, width, tall, hue) =>
      svg("rect", { x, y, width, height: tall, fill: hue, "fill-opacity": 0.8 });

    const show = () => {
      const [name, toClass, toFunction] = masks[now.mask];
      const flagged = ways.some((way) => way[3] && way[4][now.mask]);
      now.flag &&= now.plain && now.off && flagged;
      const disabled = {
        plain: now.function,
        off: now.function,
        flag: now.function || !(now.plain && now.off && flagged),
      };
      for (const [which, each] of knobs) {
        each.setAttribute("aria-pressed", String(now[which]));
        each.disabled = disabled[which] ?? false;
      }
      const way = find();
      const [[lower, middle, upper], spent] = [way[4][now.mask], way[5][now.mask]];
      const best = Math.min(...ways.map((each) => each[4][now.mask]?.[1] ?? Infinity));
      const drawn = [label("the call", 0, 21, START)];
      let at = LEFT;
      for (const [i, [part, hue]] of parts.entries()) {
        drawn.push(bar(at, 4, Math.max(long(spent[i]) - 0.7, 0), 26, hue));
        at += long(spent[i]);
        const y = TOTAL + ROW * i;
        drawn.push(label(part, 0, y + 13, START), bar(LEFT, y + 2, long(spent[i]), 14, hue));
        const was = { x: LEFT, y: y + 2, width: long(before?.[i] ?? 0), height: 14, fill: "none" };
        if (before) drawn.push(svg("rect", { ...was, stroke: hue, "stroke-dasharray": "3 2" }));
        const end = LEFT + long(Math.max(spent[i], before?.[i] ?? 0)) + 5;
        const faint = { ...START, "fill-opacity": spent[i] ? 1 : 0.6 };
        drawn.push(label(String(spent[i] || "–"), end, y + 13, faint));
      }
      const middleOf = { stroke: "var(--aa-b)", "stroke-width": 3 };
      const goal = { stroke: "currentColor", "stroke-dasharray": "4 3" };
      drawn.push(
        label(`${middle} ms`, LEFT + long(Math.max(upper, middle)) + 5, 21, START),
        svg("path", { d: `M${LEFT + long(lower)} 17H${LEFT + long(upper)}`, ...middleOf }),
        svg("path", { d: `M${LEFT + long(best)} 0V33`, ...goal }),
        label(`the fastest way: ${best}`, LEFT + long(best), 43, START),
      );
      root.replaceChildren(...drawn);
      const call = now.function ? "F.scaled_dot_product_attention" : "attention";
      const given = now.function
        ? ["q, k, v", toFunction]
        : ["x, x, x", toClass, now.flag && "is_causal=True", now.plain && "need_weights=False"];
      const line = `${call}(${given.filter(Boolean).join(", ")})`;
      const off =
        now.off && !now.function ? "torch.backends.mha.set_fastpath_enabled(False)\n" : "";
      code.textContent = off + line;
      const largest = spent.indexOf(Math.max(...spent));
      const done = middle <= 1.1 * best ? "Within a tenth of the fastest." : "";
      const part = `largest: ${parts[largest][0]}, ${spent[largest]} ms`;
      said.textContent = `${name}: ${middle} ms; ${part}. ${done}`;
      const each = parts.map(([part], i) => `${part} ${spent[i]}`).join(", ");
      root.setAttribute("aria-label", `${middle} ms: ${each}. The fastest way: ${best} ms.`);
    };
    const chosen = element("label", {}, "mask ", list);
    const pressed = element("div", { class: "aa-endings" }, ...knobs.map(([, each]) => each));
    const written = element("pre", { class: "aa-written" }, code);
    el.append(element("div", { class: "aa-controls" }, chosen), pressed, written, root, said);
    show();
  },
};
