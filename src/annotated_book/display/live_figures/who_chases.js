// A storyteller with switches for the two heads of its second layer: what they look at, and what comes next.
//
// words, edge, shapes, layers: as in storyteller.js; heads: those of each layer, cut and with layer 2 uncut
// text: three {} stand for two of the animals, and for the one of them who acts; places: of the three
// pets: the two to begin with
// counts: under each setting how many of all such beginnings end in each of three ways
import { likeliest, read, softmax, unpack } from "./host/decoder.js";
import { button, element, readout, select } from "./host/figure.js";

const WEIGHTS = new URL("./storyteller-0.bin", import.meta.url);

export default {
  async render({ model, el }) {
    const data = model.get("data");
    const { words, edge, shapes, layers, heads: cuts, text, places, animals, counts } = data;
    const answer = await fetch(WEIGHTS);
    if (!answer.ok) throw new Error(`the server says ${answer.status}`);
    const weights = unpack(await answer.arrayBuffer(), shapes);
    const nothing = new Array(weights["layers.norm.weight"].length / 2).fill(0);
    const means = new Array(layers).fill([nothing, nothing]);
    const tellers = cuts.map((each) => ({ weights, heads: each, layers, means }));
    const pets = [...data.pets];
    const on = [true, true];
    let [uncut, who] = [false, 1];
    const said = readout();
    const menus = ["first", "second"].map((which, i) => {
      const named = animals.map((each) => [each, each]);
      return select(named, (chosen) => choose(i, chosen), { "aria-label": `${which} animal` });
    });
    const chasers = pets.map((_, i) => button("", () => ((who = i), show())));
    const heads = on.map((_, i) => button(`head ${i + 1}`, () => turn(i)));
    const whole = button("uncut", () => ((uncut = !uncut), show()));
    const looks = ["h", "d", "b"].map((ink) => bars(ink, places.length));
    const next = bars("n", animals.length);

    function choose(i, chosen) {
      if (chosen === pets[1 - i]) pets[1 - i] = pets[i];
      pets[i] = chosen;
      show();
    }

    function turn(i) {
      on[i] = uncut || !on[i];
      uncut = false;
      show();
    }

    function show() {
      const given = [...pets, pets[who]].reduce((all, each) => all.replace("{}", each), text);
      const ids = [edge, ...given.split(" ")].map((word) => words.indexOf(word));
      const off = [0, 1].filter((i) => !on[i] && !uncut).map((i) => [1, i]);
      const found = read(tellers[Number(uncut)], ids, off);
      const names = [...pets.map((pet) => `Anna’s ${pet}`), "who chases"];
      const titles = on.map((each, i) => `head ${i + 1} ${each ? "looks at" : "is off"}`);
      looks.forEach((each, i) => {
        each.all.hidden = uncut === i < 2;
        if (each.all.hidden) return;
        const row = found.weights[1][i % 2].at(-1);
        const weights = places.map((place) => (uncut || on[i] ? row[place] : 0));
        each.fill([...titles, "uncut, it looks at"][i], names, weights);
      });
      const shares = softmax(found.logits.at(-1));
      const chances = animals.map((each) => shares[words.indexOf(each)]);
      next.fill("and so it says", animals, chances);
      const best = likeliest(found.logits.at(-1), words, 1)[0][0];
      const kind = best === pets[who] ? 1 : pets.includes(best) ? 0 : 2;
      const how = ["right", "it chases itself", "not Anna’s"];
      const [name, of] = Object.entries(counts)[uncut ? 4 : 3 - on[0] - 2 * on[1]];
      const all = of.map((count, i) => `${how[i]} ${count}`).join(", ");
      said.textContent = `${name}: ${best}, ${how[kind]}. Of 60 beginnings: ${all}.`;
      menus.forEach((menu, i) => (menu.value = pets[i]));
      chasers.forEach((each, i) => (each.textContent = pets[i]));
      const pressed = [who === 0, who === 1, on[0] && !uncut, on[1] && !uncut, uncut];
      [...chasers, ...heads, whole].forEach((each, i) =>
        each.setAttribute("aria-pressed", String(pressed[i])),
      );
    }

    const line = (...parts) =>
      element("div", {}, element("div", { class: "aa-endings" }, ...parts));
    const left = element("div", {}, ...looks.map(({ all }) => all));
    el.append(
      line("anna had a", menus[0], "and a", menus[1], ". the", ...chasers, "chased the …"),
      line("layer 2:", ...heads, whole),
      element("div", { class: "aa-grid" }, left, next.all),
      said,
    );
    show();
  },
};

/** Make some bars under a title, and what fills them. */
function bars(ink, count) {
  const title = element("p");
  const rows = Array.from({ length: count }, () => {
    const bar = element("i", { style: `background: var(--aa-${ink})` });
    return element("div", {}, element("span"), element("span", {}, bar), element("b"));
  });
  const all = element("div", { class: "aa-next" }, title, ...rows);
  const fill = (over, names, shares) => {
    title.textContent = over;
    rows.forEach(({ children: [name, { firstChild: bar }, share] }, i) => {
      name.textContent = names[i];
      bar.style.width = `${100 * shares[i]}%`;
      share.textContent = shares[i].toFixed(2);
    });
  };
  return { all, fill };
}
