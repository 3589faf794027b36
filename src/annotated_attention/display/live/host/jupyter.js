// Shows a figure in Jupyter through anywidget: the same frame, the same module as on the site.
import { mount } from "./figure.js";
import module from "../MODULE.js";

export default {
  render({ model, el }) {
    el.innerHTML = model.get("frame");
    return mount(el.querySelector(".aa-live"), module, model);
  },
};
