// A model that learns to tell stories: its loss sinks to the floor, it writes, and it says who was meant.
//
// steps: of each look its step (done), the loss, what it wrote (text), and the likeliest words ([word, share])
// floor: the loss of a perfect reader; asked: the story whose next word is wanted; meant: that word
import { element, readout, slider } from "./host/figure.js";

export default {
  render({ model, el }) {
    const { steps, floor, asked, meant } = model.get("data");
    const highest = Math.max(...steps.map(({ loss }) => loss));
    const bars = Array.from({ length: 1 + steps[0].best.length }, (_, i) => {
      const made = element("span", {}, element("i"));
      if (!i) made.append(element("u", { style: `left: ${(100 * floor) / highest}%` }));
      return element("div", {}, element("b"), made, element("b"));
    });
    const fill = (bar, name, share, value) => {
      bar.firstChild.textContent = name;
      bar.firstChild.style.fontWeight = name === meant ? "700" : "";
      bar.children[1].firstChild.style.width = `${100 * share}%`;
      bar.lastChild.textContent = value;
    };
    const text = element("p", { class: "aa-wrote" });
    const said = readout();
    const show = (at) => {
      const { done, loss, text: wrote, best } = steps[at];
      fill(bars[0], "loss", loss / highest, loss.toFixed(3));
      best.forEach(([word, share], i) => fill(bars[i + 1], word, share, share.toFixed(2)));
      text.textContent = wrote;
      said.textContent =
        `Step ${done}: the loss is ${loss.toFixed(3)}, the floor ${floor.toFixed(3)}. ` +
        `After “so the” it would say ${best.map(([word, share]) => `${word} ${share.toFixed(2)}`).join(", ")}.`;
    };
    const time = slider({
      label: "training step",
      max: steps.length - 1,
      say: (at) => String(steps[at].done),
      move: show,
    });
    const titled = (title, ...parts) =>
      element("div", { class: "aa-next" }, element("p", {}, title), ...parts);
    el.append(
      element("div", { class: "aa-controls" }, time.label),
      element(
        "div",
        { class: "aa-learns" },
        titled("its loss; the line is the floor", bars[0]),
        titled("what it writes", text),
        titled(`${asked} …`, ...bars.slice(1)),
      ),
      said,
    );
    show(0);
  },
};
