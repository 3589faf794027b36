// Wheels: a listing whose parts can be taken out; what calls say, and a model tells, without them.
//
// lines: the pieces of each line, as [text, the number of its part or -1]; parts, calls: their names
// verdicts: for each set of parts what each call says; bit j of a set's number: part j is out
// out: the numbers of the parts that are out to begin with
// tales: for each set of parts what is known of the model, and its story; or none
//
// What the calls say and the model tells was computed by the chapter, for every set.
import { button, element, readout } from "./host/figure.js";

/** Number a set of parts. */
export const place = (out) => out.reduce((sum, part) => sum + 2 ** part, 0);

/** Split a story into pieces, each marked or not where the first story has other words. */
export const marked = (words, first) => {
  const was = first.split(" ");
  return words.split(" ").map((word, i) => [word, word !== was[i]]);
};

export default {
  render({ model, el }) {
    const { lines, parts, calls, verdicts, out, tales } = model.get("data");
    const gone = new Set(out);
    const code = element("code");
    const cells = calls.map(() => element("dd"));
    const teller = element("p", { class: "aa-tally" });
    const tale = element("p", { class: "aa-tells" });
    const said = readout();
    const turn = (part) => {
      if (!gone.delete(part)) gone.add(part);
      show();
    };
    const buttons = parts.map((name, part) => button(name, () => turn(part)));
    const piece = ([text, part]) => {
      if (part < 0) return text;
      const made = element(gone.has(part) ? "del" : "span", { class: "aa-wheel" }, text);
      made.addEventListener("click", () => turn(part));
      return made;
    };
    const hung = (line) => {
      const within = line
        .map(([text]) => text)
        .join("")
        .search(/\S|$/);
      return element(
        "span",
        { class: "aa-hung", style: `--in: ${within}` },
        ...line.map(piece),
        "\n",
      );
    };
    const tell = ([facts, words]) => {
      const pieces = marked(words, tales[0][1]).map(([x, other]) =>
        other ? element("mark", {}, x) : x,
      );
      teller.textContent = facts;
      tale.replaceChildren(...pieces.flatMap((piece) => [piece, " "]));
    };
    const show = () => {
      const told = verdicts[place([...gone])];
      if (tales.length) tell(tales[place([...gone])]);
      code.replaceChildren(...lines.map(hung));
      buttons.forEach((each, part) => each.setAttribute("aria-pressed", String(gone.has(part))));
      cells.forEach((cell, i) => {
        cell.textContent = gone.size ? told[i] : "right";
        cell.classList.toggle("aa-unnoticed", gone.size > 0 && told[i] === "unnoticed");
      });
      const missed = calls.filter((_, i) => told[i] === "unnoticed");
      const names = parts.filter((_, part) => gone.has(part)).join(", ");
      const noticed = `${calls.length - missed.length} of ${calls.length} calls notice it.`;
      said.textContent = gone.size ? `Without ${names}: ${noticed}` : "Nothing is missing.";
    };
    el.append(
      element("div", { class: "aa-endings", role: "group", "aria-label": "take out" }, ...buttons),
      element("pre", { class: "aa-wheels" }, code),
      element(
        "dl",
        { class: "aa-verdicts" },
        ...calls.map((call, i) => element("div", {}, element("dt", {}, call), cells[i])),
      ),
      ...(tales.length ? [teller, tale] : []),
      said,
    );
    show();
  },
};
