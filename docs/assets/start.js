// Last on every page: when the page has been drawn, starts the theme's script and then the book's
// own. What a reader waits to see does not wait for them.
{
  const OURS = ["live/host/site", "reading", "glossary", "progress", "scrolling"];
  const { currentScript: start } = document;
  const theme = document.createElement("script");
  theme.src = start.dataset.theme;

  const pause = () => new Promise((go) => setTimeout(go)); // in which a reader is answered

  const go = async () => {
    await pause();
    // The theme begins with an event that has passed by now.
    if (document.readyState !== "loading") document.dispatchEvent(new Event("DOMContentLoaded"));
    for (const name of OURS) {
      await pause();
      await import(`./${name}.js`).catch(console.error);
    }
    start.dataset.started = ""; // for tests to wait for
  };

  theme.onload = theme.onerror = go; // ours can do without it
  requestAnimationFrame(() => setTimeout(() => document.body.append(theme)));
}
