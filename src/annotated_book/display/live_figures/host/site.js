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

const load = (frame) => import(new URL(`../${frame.dataset.live}.js`, import.meta.url));

async function start(frame) {
  try {
    const { default: module } = await load(frame);
    await mount(frame, module);
  } catch (error) {
    console.error(`the live figure ${frame.dataset.live} did not start`, error);
  }
}

const frames = [...document.querySelectorAll(".aa-live")];
for (const frame of frames) coming.observe(frame);
// Whoever jumps to a figure finds its module loaded: a press before it starts would be lost.
globalThis.requestIdleCallback?.(() => {
  for (const frame of frames) load(frame).catch(() => {});
});
