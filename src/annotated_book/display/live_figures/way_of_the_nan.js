// The way of a NaN: boxes to press, each of which then says what it holds, and why.
//
// panels: of each its title, and its boxes: name, row, what is written on it, what it holds, its
//   state ("NaN", "finite", "0"), and why; those of the first row are open
import { button, element, readout } from "./host/figure.js";

export default {
  render({ model, el }) {
    const said = readout();
    const boxes = [];
    const left = () => {
      const closed = boxes.filter(({ box }) => !box.dataset.state).length;
      return closed ? `${closed} still closed.` : "All are open.";
    };
    const panels = model.get("data").panels.map(([title, ...rest]) => {
      const rows = rest.map(([, row]) => row);
      const drawn = rest.map(([name, row, lines, holds, state, why]) => {
        const last = element("b", {}, "?");
        const box = button("", () => open());
        box.setAttribute("aria-label", name);
        box.classList.toggle("aa-alone", rows.filter((other) => other === row).length === 1);
        box.append(...lines.map((line) => element("span", {}, line)), last);
        const open = () => {
          last.textContent = holds;
          box.dataset.state = state;
          box.setAttribute("aria-label", `${name}, ${holds}`);
          said.textContent = `${why} ${left()}`;
          if (boxes.every((each) => each.box.dataset.state)) el.removeAttribute("data-covered");
        };
        boxes.push({ box, open });
        if (row === 0) open();
        return box;
      });
      return element("div", {}, element("p", {}, title), ...drawn);
    });
    el.append(
      element(
        "div",
        { class: "aa-endings" },
        button("open all", () => {
          boxes.forEach((b) => b.open());
          said.textContent =
            "The NaN begins in a dot's row, and 0 · NaN carries it on. All are open.";
        }),
      ),
      element("div", { class: "aa-way" }, ...panels),
      said,
    );
    said.textContent = "Guess, and press.";
    el.toggleAttribute("data-covered", true); // what it gives away stays blurred, see book.css
    el.classList.add("aa-untouched");
    el.addEventListener("click", () => el.classList.remove("aa-untouched"), { once: true });
  },
};
