// Brings the live figures of a page to life, each when it is about to come into view.
import { mount } from "./figure.js";

const known = new WeakSet();
const running = new Map();

const coming = new IntersectionObserver(
  (entries) => {
    for (const { isIntersecting, target } of entries) {
      if (!isIntersecting) continue;
      coming.unobserve(target);
      start(target);
    }
  },
  { rootMargin: "400px" },
);

async function start(frame) {
  try {
    const { default: module } = await import(new URL(`../${frame.dataset.live}.js`, import.meta.url));
    if (!frame.isConnected) return;
    running.set(frame, await mount(frame, module));
  } catch (error) {
    console.error(`the live figure ${frame.dataset.live} did not start`, error);
  }
}

function look() {
  for (const [frame, end] of running) {
    if (frame.isConnected) continue;
    end();
    running.delete(frame);
  }
  for (const frame of document.querySelectorAll(".aa-live")) {
    if (known.has(frame)) continue;
    known.add(frame);
    coming.observe(frame);
  }
}

// The theme tells of every page that it shows, the first one too, also when it swaps only the
// content of the document. Without the theme there is this one page.
if (window.document$) window.document$.subscribe(look);
else look();
