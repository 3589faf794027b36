// Notes and code side by side: the button of a chapter, what it remembers, and the menu, since there is
// no room for the sidebars beside both.
const root = document.documentElement;
const button = document.querySelector(".aa-beside-button");
const menu = document.querySelector(".aa-menu-button");

function show(beside) {
  root.classList.toggle("aa-beside", beside);
  button.setAttribute("aria-pressed", String(beside));
  unfold(false);
}

function unfold(shown) {
  root.classList.toggle("aa-menu", shown);
  menu.setAttribute("aria-expanded", String(shown));
}

if (button) {
  show(root.classList.contains("aa-beside")); // reading-early.js has remembered
  button.addEventListener("click", () => {
    const top = (row) => row.getBoundingClientRect().top;
    const read = [...document.querySelectorAll(".aa-pair")].findLast(
      (row) => top(row) < innerHeight / 2,
    );
    const before = read && top(read);
    show(!root.classList.contains("aa-beside"));
    if (read) scrollBy(0, top(read) - before); // what is being read stays where it is
    __md_set(`beside ${location.pathname}`, root.classList.contains("aa-beside")); // silent where nothing can be kept
  });
  menu.addEventListener("click", () => unfold(!root.classList.contains("aa-menu")));
  document.addEventListener("keydown", ({ key }) => key === "Escape" && unfold(false));
  document.addEventListener("click", ({ target }) => {
    if (target.closest(".md-sidebar a") || !target.closest(".md-sidebar, .aa-menu-button"))
      unfold(false);
  });
}
