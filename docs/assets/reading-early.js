// In the head of a chapter, so that the page is never drawn in the other way of reading first.
try {
  if (__md_get("beside")) document.documentElement.classList.add("aa-beside");
} catch {
  // What cannot be remembered is off.
}
