// The milliseconds of one call, as the reader writes it.
//
// masks: of each its name, and how the class and the function are given it
// ways: of each whether it is the function, without weights, off the fast path; under each mask
//   the quartiles of its milliseconds, and whether the fused kernel runs
// start: the mask to begin with
import { button, element, readout, select, svg } from "./host/figure.js";
import { label } from "./host/panel.js";

const [WIDE, HIGH] = [352, 64];

export default {
  render({ model, el }) {
    const { masks, ways, start } = model.get("data");
    const now = { mask: start, function: false, plain: false, off: false };
    const most = Math.max(...ways.flatMap((way) => way[3].map((times) => times[2])));
    const at = (milliseconds) => ((WIDE - 60) * milliseconds) / most;
    const root = svg("svg", { viewBox: `0 0 ${WIDE} ${HIGH}`, role: "img", fill: "currentColor" });
    root.style.maxWidth = `${1.3 * WIDE}px`;
    let awake = false; // the function, once the class is as fast as it can be
    const [code, said] = [element("code"), readout()];

    const turn = (name, text) => {
      const flip = () => ((now[name] = !now[name]), show());
      return [name, button(text, flip)];
    };
    const caller = turn("function", "call the function");
    const knobs = [turn("plain", "need_weights=False"), turn("off", "fast path off"), caller];
    const options = masks.map(([name], i) => [i, name]);
    const list = select(options, (value) => ((now.mask = Number(value)), show()));
    list.value = now.mask;

    const show = () => {
      const [name, toClass, toFunction] = masks[now.mask];
      const own = ways.find(([isFunction, plain, off]) =>
        now.function ? isFunction : !isFunction && plain === now.plain && off === now.off,
      );
      const [[low, middle, high], fused] = [own[3][now.mask], own[4][now.mask]];
      const best = Math.min(...ways.map((way) => way[3][now.mask][1]));
      awake ||= now.plain && now.off;
      for (const [which, each] of knobs) {
        each.setAttribute("aria-pressed", String(now[which]));
        each.disabled = which === "function" ? !awake : now.function;
      }
      const ink = `var(--aa-${fused ? "n" : "h"})`;
      const goal = { stroke: "currentColor", "stroke-dasharray": "4 3" };
      const middleOf = { stroke: "var(--aa-b)", "stroke-width": 3 };
      root.replaceChildren(
        svg("rect", { width: at(middle), height: 30, y: 4, fill: ink, "fill-opacity": 0.8 }),
        svg("path", { d: `M${at(low)} 19H${at(high)}`, ...middleOf }),
        svg("path", { d: `M${at(best)} 0V44`, ...goal }),
        label(`${middle} ms`, at(Math.max(high, middle)) + 6, 24, { "text-anchor": "start" }),
        label(`the fastest way: ${best}`, at(best), 58, { "text-anchor": "start" }),
      );
      const given = now.function
        ? ["q, k, v", toFunction]
        : ["x, x, x", toClass, now.plain && "need_weights=False"];
      const call = now.function ? "F.scaled_dot_product_attention" : "attention";
      const line = `${call}(${given.filter(Boolean).join(", ")})`;
      const off =
        now.off && !now.function ? "torch.backends.mha.set_fastpath_enabled(False)\n" : "";
      code.textContent = off + line;
      const kernel = fused ? "the fused kernel runs" : "step by step, all weights are made";
      const done = middle <= 1.1 * best ? "Nothing here is clearly faster." : "";
      said.textContent = `${name}: ${middle} ms; ${kernel}. ${done}`;
      root.setAttribute("aria-label", `${middle} ms; the fastest way: ${best} ms.`);
    };
    const chosen = element("label", {}, "mask ", list);
    const pressed = element("div", { class: "aa-endings" }, ...knobs.map(([, each]) => each));
    const written = element("pre", { class: "aa-written" }, code);
    el.append(element("div", { class: "aa-controls" }, chosen), pressed, written, root, said);
    show();
  },
};
