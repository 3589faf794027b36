// A net of answers while models learn: one unfolds onto the crosses, where it can.
//
// steps: of training; starts: of each the two models: a name and, at every step, where the answers lie, one a scene
// scenes: where they are to lie; side: how many scenes stand in a row; names: of the axes; reach: as far as they go
import { button, calm, element, readout, slider, svg } from "./host/figure.js";
import { label } from "./host/panel.js";

const [SIDE, EDGE, PACE] = [260, 24, 220]; // of a drawing, of its border, and ms from one step to the next

/** Say how far off answers are, as a root mean square. */
export const off = (answers, scenes) =>
  Math.sqrt(
    answers.flat().reduce((sum, x, i) => sum + (x - scenes.flat()[i]) ** 2, 0) /
      answers.flat().length,
  );

export default {
  render({ model, el }) {
    const { steps, starts, scenes, side, names, reach } = model.get("data");
    const nets = starts[0].map(([name], i) => drawNet(name, "hd"[i], scenes, side, names, reach));
    const said = readout();
    let [timer, now] = [undefined, 0];
    const show = (at) => {
      const told = starts[now].map(
        ([name, answers]) => `${name} off by ${off(answers[at], scenes).toFixed(2)}`,
      );
      nets.forEach((net, i) => net.show(starts[now][i][1][at], told[i]));
      said.textContent = `Start ${now + 1}, step ${steps[at]}: ${told.join(", ")}.`;
    };
    const stop = () => (timer = clearInterval(timer));
    const time = slider({
      label: "training step",
      max: steps.length - 1,
      say: (at) => String(steps[at]),
      move: (at) => (stop(), show(at)),
    });
    const run = () => {
      stop();
      let at = calm() ? steps.length - 1 : 0;
      const go = () => {
        time.show(at);
        show(at);
        if (++at >= steps.length) stop();
      };
      if (at < steps.length - 1) timer = setInterval(go, PACE);
      go();
    };
    const again = () => {
      now = (now + 1) % starts.length;
      run();
    };
    const buttons = [button("train", run), button("from another start", again)];
    const controls = element("div", { class: "aa-controls" }, ...buttons, time.label);
    el.append(
      controls,
      element("div", { class: "aa-panels" }, ...nets.map(({ root }) => root)),
      said,
    );
    show(0);
    return stop;
  },
};

function drawNet(name, letter, scenes, side, names, reach) {
  const place = (x) => SIDE / 2 + (x * (SIDE / 2 - EDGE)) / reach;
  const view = { viewBox: `0 0 ${SIDE} ${SIDE + 8}`, role: "img", fill: "currentColor" };
  const ink = { stroke: `var(--aa-${letter})` };
  const crosses = scenes.map(
    ([x, y]) => `M${place(x) - 4} ${place(-y)}h8M${place(x)} ${place(-y) - 4}v8`,
  );
  const net = svg("path", { fill: "none", ...ink, "stroke-width": 1.5 });
  const dots = scenes.map(() => svg("circle", { r: 4.5, fill: ink.stroke }));
  const root = svg(
    "svg",
    view,
    svg("path", { d: crosses.join(""), stroke: "#808080" }),
    net,
    ...dots,
    label(name, SIDE / 2, 14, { "font-size": 14, "font-weight": "bold" }),
    label(`${names[0]} →`, SIDE / 2, SIDE + 4),
    label(`${names[1]} →`, 0, 0, { transform: `translate(11 ${SIDE / 2}) rotate(-90)` }),
  );
  const show = (answers, told) => {
    const at = ([x, y]) => `${place(x).toFixed(1)} ${place(-y).toFixed(1)}`;
    const every = answers.map((_, i) => i);
    const rows = Array.from({ length: side }, (_, i) => [
      every.filter((j) => Math.floor(j / side) === i),
      every.filter((j) => j % side === i),
    ]).flat();
    net.setAttribute(
      "d",
      rows.map((row) => `M${row.map((j) => at(answers[j])).join("L")}`).join(""),
    );
    dots.forEach((dot, i) => {
      dot.setAttribute("cx", place(answers[i][0]));
      dot.setAttribute("cy", place(-answers[i][1]));
    });
    root.setAttribute("aria-label", `The answers of ${told}.`);
  };
  return { root, show };
}
