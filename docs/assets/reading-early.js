// In the head of a chapter, so that the page is never drawn in the other way of reading first. Each
// page is remembered for itself: who asks on one has not asked on the others.
try {
  if (__md_get(`beside ${location.pathname}`)) document.documentElement.classList.add("aa-beside");
} catch {
  // What cannot be remembered is off.
}
