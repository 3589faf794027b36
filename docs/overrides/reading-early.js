// In the head of a chapter, so that the page is never drawn in the other way of reading first. Each
// page is remembered for itself: who asks on one has not asked on the others.
try {
  if (__md_get(`beside ${location.pathname}`)) document.documentElement.classList.add("aa-beside");
} catch {
  // What cannot be remembered is off.
}
// A phone leaves out the rows that are far from sight, and guesses how high they are. Who comes back to
// a line, or follows a link to one, needs them all where they are.
{
  const whole = () => document.documentElement.classList.add("aa-whole-page");
  const [{ type } = {}] = performance.getEntriesByType("navigation");
  if (location.hash || (type && type !== "navigate")) whole();
  addEventListener("click", ({ target }) => target.closest?.('a[href*="#"]') && whole(), true);
}
