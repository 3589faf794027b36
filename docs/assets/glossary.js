// Shows what a term means: on hover, on focus, and on the first tap; Escape closes it.
const tip = document.createElement("div");
tip.id = "aa-tip";
tip.className = "aa-tip";
tip.setAttribute("role", "tooltip");
tip.hidden = true;
document.body.append(tip);

let shown = null;
let leaving = 0;
let tapped = null; // the term under a finger, unless it was shown before

const termAt = (event) => event.target.closest?.(".aa-term") ?? null;

function show(term) {
  clearTimeout(leaving);
  if (term === shown) return;
  hide();
  shown = term;
  tip.textContent = term.dataset.means;
  tip.hidden = false;
  term.setAttribute("aria-describedby", tip.id);
  const line = term.getClientRects()[0];
  const room = document.documentElement.clientWidth - tip.offsetWidth - 8;
  const below = line.bottom + 4 + tip.offsetHeight < innerHeight;
  const top = below ? line.bottom + 4 : line.top - 4 - tip.offsetHeight;
  tip.style.left = `${scrollX + Math.max(8, Math.min(line.left, room))}px`;
  tip.style.top = `${scrollY + top}px`;
}

function hide() {
  clearTimeout(leaving);
  shown?.removeAttribute("aria-describedby");
  shown = null;
  tip.hidden = true;
}

document.addEventListener("pointerover", (event) => {
  if (event.pointerType === "touch") return;
  if (termAt(event)) show(termAt(event));
  else if (tip.contains(event.target)) clearTimeout(leaving);
});
document.addEventListener("pointerout", (event) => {
  if (event.pointerType === "touch" || !(termAt(event) || tip.contains(event.target))) return;
  clearTimeout(leaving);
  leaving = setTimeout(hide, 200); // time to reach the tip
});
document.addEventListener("pointerdown", (event) => {
  const term = termAt(event);
  tapped = event.pointerType === "touch" && term !== shown ? term : null;
  if (!term && !tip.contains(event.target)) hide();
});
document.addEventListener(
  "click",
  (event) => {
    const term = termAt(event);
    if (!term) return;
    if (term === tapped) {
      event.preventDefault(); // a second tap follows the link
      event.stopPropagation();
      show(term);
    } else hide();
    tapped = null;
  },
  true,
);
document.addEventListener("focusin", (event) => {
  if (termAt(event)) show(termAt(event));
});
document.addEventListener("focusout", (event) => {
  if (termAt(event)) hide();
});
document.addEventListener("keydown", (event) => {
  if (event.key === "Escape") hide();
});
