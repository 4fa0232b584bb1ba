// The row above all pictures along one axis of time.

import { claim } from "./shared/page.js";
import { toolbar } from "./shared/toolbar.js";

function render({ model, el }) {
  const { element, end } = toolbar(model);
  claim(el, "dh-time");
  el.append(element);
  return end;
}

export default { render };
