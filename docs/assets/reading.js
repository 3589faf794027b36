// Notes and code side by side: the button of a chapter, and what it remembers.
const root = document.documentElement;

function remembered() {
  try {
    return Boolean(__md_get("beside"));
  } catch {
    return false;
  }
}

function show(button, beside) {
  root.classList.toggle("aa-beside", beside);
  button?.setAttribute("aria-pressed", String(beside));
}

function look() {
  const button = document.querySelector(".aa-beside-button");
  show(button, button !== null && remembered());
  if (!button) return;
  button.onclick = () => {
    const beside = !root.classList.contains("aa-beside");
    show(button, beside);
    __md_set("beside", beside); // keeps silent where nothing can be kept
  };
}

// The theme tells of every page that it shows, also when it swaps only the document's content.
if (window.document$) window.document$.subscribe(look);
else look();
