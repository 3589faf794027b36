// Brings the live figures of a page to life, each when it is about to come into view.
import { mount } from "./figure.js";

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
    const { default: module } = await import(
      new URL(`../${frame.dataset.live}.js`, import.meta.url)
    );
    await mount(frame, module);
  } catch (error) {
    console.error(`the live figure ${frame.dataset.live} did not start`, error);
  }
}

for (const frame of document.querySelectorAll(".aa-live")) coming.observe(frame);
