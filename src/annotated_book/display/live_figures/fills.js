// The way back through one layer, under one of several fills: what each gradient holds.
//
// panels: of each fill its name, what it ends in, and its boxes: row, what is written on it, its
//   state ("NaN", "finite", "0")
import { button, element, readout } from "./host/figure.js";

export default {
  render({ model, el }) {
    const { panels } = model.get("data");
    const said = readout();
    const rows = panels[0][2].map(([row]) => row);
    const boxes = rows.map((row) => {
      const box = element("div", { class: "aa-button" });
      box.classList.toggle("aa-alone", rows.filter((other) => other === row).length === 1);
      return box;
    });
    const show = (at) => {
      const [, end, drawn] = panels[at];
      drawn.forEach(([, ...lines], i) => {
        const state = lines.pop();
        const last = element("b", {}, lines.pop());
        boxes[i].replaceChildren(...lines.map((line) => element("span", {}, line)), last);
        boxes[i].dataset.state = state;
      });
      fills.forEach((fill, i) => fill.setAttribute("aria-pressed", String(i === at)));
      said.textContent = end;
      if (at === panels.length - 1) el.removeAttribute("data-covered");
    };
    const fills = panels.map(([name], i) => button(name, () => show(i)));
    const group = { class: "aa-endings", role: "group", "aria-label": "fill" };
    const way = element("div", {}, element("p", {}, "On the way back"), ...boxes);
    el.append(element("div", group, ...fills), element("div", { class: "aa-way" }, way), said);
    el.toggleAttribute("data-covered", true); // what it gives away stays blurred, see book.css
    show(0);
  },
};
