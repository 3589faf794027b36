// Notes and code side by side: the button of a chapter, and what it remembers.
const root = document.documentElement;
const button = document.querySelector(".aa-beside-button");

function show(beside) {
  root.classList.toggle("aa-beside", beside);
  button.setAttribute("aria-pressed", String(beside));
}

if (button) {
  show(root.classList.contains("aa-beside")); // reading-early.js has remembered
  button.addEventListener("click", () => {
    show(!root.classList.contains("aa-beside"));
    __md_set("beside", root.classList.contains("aa-beside")); // silent where nothing can be kept
  });
}
