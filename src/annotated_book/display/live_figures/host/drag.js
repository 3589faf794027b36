// Dragging a point of a drawing, by mouse, pen or finger. Sliders do the same by keys.

/** Call `move` with a place in the drawing's own units while `handle` is dragged. */
export function drag(root, handle, move) {
  handle.style.cssText = "cursor: grab; touch-action: none";
  handle.addEventListener("pointerdown", (event) => {
    event.preventDefault();
    handle.setPointerCapture(event.pointerId);
  });
  handle.addEventListener("pointermove", (event) => {
    if (!handle.hasPointerCapture(event.pointerId)) return;
    const screen = new DOMPoint(event.clientX, event.clientY);
    const { x, y } = screen.matrixTransform(root.getScreenCTM().inverse());
    move(x, y);
  });
}
