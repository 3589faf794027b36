// A link to what is folded away opens the fold: not every browser does so by itself.
function unfold() {
  const target = document.getElementById(decodeURIComponent(location.hash.slice(1)));
  let fold = target?.closest("details:not([open])");
  if (!fold) return;
  for (; fold; fold = fold.parentElement.closest("details")) fold.open = true;
  target.scrollIntoView();
}

addEventListener("hashchange", unfold);
unfold();
