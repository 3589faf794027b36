// Starts a figure in a notebook's output: the same frame, the same module as on the site.
import { mount } from "./figure.js";
import module from "../MODULE.js";

for (const frame of document.querySelectorAll(".aa-live[data-live=MODULE]:not([data-live-on])")) {
  // What has the focus gets the keys: JupyterLab's shortcuts look at the element itself.
  frame.addEventListener("focusin", ({ target }) => (target.dataset.lmSuppressShortcuts = ""));
  mount(frame, module);
}
