// Who waits, where a page has a place for it.

import { claim } from "./shared/page.js";
import { showQueue } from "./shared/queue.js";

function render({ model, el }) {
  claim(el, "dh-waiting-jobs");
  return showQueue(model, el);
}

export default { render };
