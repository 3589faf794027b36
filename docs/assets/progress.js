// Remembers which chapters are finished: in this browser alone, and only those that their reader
// says are. Without scripts, or where nothing can be stored, no sign of it is shown.
const KEY = "annotated-attention.finished";

function finished() {
  try {
    const names = JSON.parse(localStorage.getItem(KEY) ?? "[]");
    return new Set(Array.isArray(names) ? names : []);
  } catch {
    return new Set();
  }
}

function remember(names) {
  if (names.size) localStorage.setItem(KEY, JSON.stringify([...names].sort()));
  else localStorage.removeItem(KEY);
}

const nameIn = (address) => new URL(address).pathname.match(/\/chapters\/([\w-]+)\/$/)?.[1];

// The navigation and the list reserve room for a tick behind each chapter.
function show() {
  const names = finished();
  for (const mark of document.querySelectorAll(".aa-tick, .md-status--chapter")) {
    const link = mark.closest("a");
    const done = names.has(nameIn(link?.href ?? location.href));
    mark.innerHTML = done
      ? '<span aria-hidden="true">✓</span><span class="aa-heard"> finished</span>'
      : "";
    link?.classList.toggle("aa-finished", done);
  }
  for (const box of document.querySelectorAll(".aa-finish input")) {
    box.checked = names.has(nameIn(location.href));
    box.closest(".aa-finish").classList.add("aa-works");
  }
  for (const line of document.querySelectorAll(".aa-so-far")) {
    const all = document.querySelectorAll(".aa-chapters a").length;
    const known = document.querySelectorAll(".aa-chapters a.aa-finished").length;
    const text = known ? `You have finished ${known} of ${all}.` : "";
    line.querySelector("span").textContent = text;
    line.classList.toggle("aa-works", names.size > 0);
  }
}

function works() {
  try {
    localStorage.getItem(KEY);
    return true;
  } catch {
    return false;
  }
}

if (works()) {
  document.addEventListener("change", ({ target }) => {
    if (!target.matches(".aa-finish input")) return;
    const names = finished();
    if (target.checked) names.add(nameIn(location.href));
    else names.delete(nameIn(location.href));
    remember(names);
    show();
  });
  document.addEventListener("click", ({ target }) => {
    if (!target.matches(".aa-so-far button")) return;
    remember(new Set());
    show();
    document.querySelector(".aa-chapters a").focus(); // the button is gone
  });
  addEventListener("storage", show); // another tab
  addEventListener("pageshow", show); // back from a page that was left
  show();
}
