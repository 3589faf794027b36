// What every live figure stands on: how it takes the static picture's place, and its controls.

/**
 * Put a live figure where the static picture of `frame` is drawn.
 *
 * The picture is hidden once the figure stands; if the figure fails, the picture stays. Printing
 * shows the picture. Whatever an earlier visit left in the frame is replaced: one figure a frame.
 *
 * @param frame the element of class aa-live around the static figure
 * @param module what the figure's file exports, in anywidget's shape
 * @param model where it finds its data; by default, those that the frame holds
 * @returns a function that ends the figure and brings the picture back
 */
export async function mount(
  frame,
  module,
  model = new Model({ data: JSON.parse(frame.dataset.state) }),
) {
  frame.querySelectorAll(".aa-stage").forEach((stage) => stage.remove());
  const picture = frame.querySelector("figure").firstElementChild;
  const stage = element("div", { class: "aa-stage" });
  picture.before(stage);
  let cleanup;
  try {
    cleanup = await module.render({ model, el: stage });
  } catch (error) {
    stage.remove();
    throw error;
  }
  frame.dataset.liveOn = "";
  return () => {
    cleanup?.();
    stage.remove();
    delete frame.dataset.liveOn;
  };
}

// What a module reads its data from, as anywidget's models are, without a kernel behind it.
class Model extends EventTarget {
  #values;
  constructor(values) {
    super();
    this.#values = values;
  }
  get(name) {
    return this.#values[name];
  }
  set(name, value) {
    this.#values[name] = value;
    this.dispatchEvent(new Event(`change:${name}`));
  }
  save_changes() {}
  on(name, listener) {
    this.addEventListener(name, listener);
  }
  off(name, listener) {
    this.removeEventListener(name, listener);
  }
}

/** Make an HTML element. An attribute that is undefined, null or false is left out. */
export function element(tag, attributes = {}, ...children) {
  return fill(document.createElement(tag), attributes, children);
}

/** Make an SVG element, in the same way. */
export function svg(tag, attributes = {}, ...children) {
  return fill(document.createElementNS("http://www.w3.org/2000/svg", tag), attributes, children);
}

function fill(made, attributes, children) {
  for (const [name, value] of Object.entries(attributes))
    if (value !== undefined && value !== null && value !== false)
      made.setAttribute(name, value === true ? "" : value);
  made.append(...children);
  return made;
}

/**
 * Make a labelled slider. What it stands at is announced in words, not as a bare number.
 *
 * @param say gives the words for a value
 * @param move is called with the new value whenever the reader moves it
 * @returns the label, the input in it, and `show`, which sets a value without calling `move`
 */
export function slider({ label, min = 0, max, step = 1, value = min, say = String, move }) {
  const input = element("input", { type: "range", min, max, step, value });
  const shown = element("span", { class: "aa-value", "aria-hidden": "true" });
  const show = (now) => {
    input.value = now;
    shown.textContent = say(Number(input.value));
    input.setAttribute("aria-valuetext", shown.textContent);
  };
  input.addEventListener("input", () => {
    show(input.value);
    move(Number(input.value));
  });
  show(value);
  const holder = element("label", { class: "aa-slider" }, element("span", {}, label), input, shown);
  return { label: holder, input, show };
}

/** Make a button. */
export function button(text, press) {
  const made = element("button", { type: "button", class: "aa-button" }, text);
  made.addEventListener("click", press);
  return made;
}

/**
 * Make a list to choose from.
 *
 * @param options of each what it stands for, and its name
 * @param move is called with the value of what the reader chooses
 */
export function select(options, move, attributes = {}) {
  const named = options.map(([value, name]) => element("option", { value }, name));
  const made = element("select", { class: "aa-select", ...attributes }, ...named);
  made.addEventListener("change", () => move(made.value));
  return made;
}

/** Make the line under a figure that says what it shows; screen readers announce its changes. */
export function readout() {
  return element("p", { class: "aa-readout", role: "status", "aria-live": "polite" });
}

/** Say whether the reader asked for less movement. */
export const calm = () => matchMedia("(prefers-reduced-motion: reduce)").matches;
