// What scrolls sideways can be reached and scrolled by keyboard. The theme sees to code; this sees
// to outputs, formulas, tables and figures, and only while they are wider than their place.
const NAMES = {
  ".aa-text": "Output",
  ".aa-figure": "", // it has a caption
  ".katex-display": "Formula",
  ".md-typeset__scrollwrap, .md-typeset__table": "Table",
};

const sized = new ResizeObserver((entries) => {
  for (const { target } of entries) {
    const scrolls = target.scrollWidth > target.clientWidth;
    const [, name] = Object.entries(NAMES).find(([selector]) => target.matches(selector));
    const marks = name ? { role: "group", "aria-label": `${name}, scrolls sideways` } : {};
    for (const [mark, value] of Object.entries({ tabindex: 0, ...marks }))
      if (scrolls) target.setAttribute(mark, value);
      else target.removeAttribute(mark);
  }
});

// The theme gives tables the place that they scroll in when the document is read.
document.addEventListener("DOMContentLoaded", () => {
  for (const region of document.querySelectorAll(Object.keys(NAMES).join())) sized.observe(region);
});
