// Light or dark: what the reader chose, or else what the system prefers. Runs before the page's
// content is read, so that nothing is drawn in one scheme first and in the other after.
{
  const { body, documentElement: root, currentScript } = document;
  const button = currentScript.previousElementSibling;

  const isDark = () => body.dataset.mdColorScheme === "slate";

  const show = (dark) => {
    body.dataset.mdColorScheme = dark ? "slate" : "default";
    button.setAttribute("aria-pressed", String(dark));
  };

  const chosen = () => {
    try {
      return __md_get("__palette")?.color?.scheme; // kept as the theme keeps it
    } catch {
      return null; // what cannot be remembered was not chosen
    }
  };

  const scheme = chosen();
  show(scheme ? scheme === "slate" : matchMedia("(prefers-color-scheme: dark)").matches);
  button.addEventListener("click", () => {
    show(!isDark());
    __md_set("__palette", { color: { scheme: body.dataset.mdColorScheme } });
  });
  // The theme's script says so too, but over the finished page, all of which is then styled again.
  root.classList.remove("no-js");
  root.classList.add("js", "js-focus-visible");
  root.setAttribute("data-js-focus-visible", "");
}
