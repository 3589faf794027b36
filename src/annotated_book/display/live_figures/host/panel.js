// A panel of a live figure: a drawing of a fixed size with a title above and an axis below.
import { svg } from "./figure.js";

export const [WIDTH, HEIGHT, LEFT, RIGHT, TOP, LOW] = [320, 176, 30, 310, 30, 136];

/** The style of a text that lines run behind. */
export const HALO =
  "paint-order: stroke; stroke-width: 4; stroke: var(--md-default-bg-color, var(--jp-layout-color0, Canvas))";

/** Write a text; it stands over its middle. */
export const label = (text, x, y, more = {}) =>
  svg("text", { x, y, "font-size": 12, "text-anchor": "middle", ...more }, text);

/**
 * Make an empty panel: a title, an axis, and what the axis shows.
 *
 * @returns the drawing, and `show`, which sets its title and what it says to a screen reader
 */
export function panel(axis) {
  const root = svg("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, role: "img", fill: "currentColor" });
  const title = label("", WIDTH / 2, 14);
  const line = svg("path", { d: `M${LEFT} ${LOW}H${RIGHT}`, stroke: "#808080" });
  root.append(line, title, label(axis, WIDTH / 2, HEIGHT - 6));
  const show = (text, all) => {
    title.textContent = text;
    root.setAttribute("aria-label", all);
  };
  return { root, show };
}

/** Name heights, at the left. */
export const heights = (y, ...values) =>
  values.map((value) =>
    label(value, LEFT - 6, y(value) + 4, { "text-anchor": "end", "font-size": 11 }),
  );
