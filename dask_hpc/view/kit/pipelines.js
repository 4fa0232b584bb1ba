// In situ pipelines, each as a picture that the Python side drew: what users said is escaped in it.

import { follow } from "./shared/course.js";
import { claim, h } from "./shared/page.js";

function render({ model, el }) {
  const body = h("div");
  claim(el, "dh-pipelines");
  el.append(h("h3", {}, "In situ pipelines"), body);

  function show(drawn) {
    el.hidden = Boolean(model.get("tiles")) && !drawn;
    if (drawn) body.innerHTML = drawn;
    else body.replaceChildren(h("div", { class: "dh-note" }, "No pipeline has run yet: what a dask_hpc.InSituPipeline does on this cluster shows here."));
  }

  show("");
  return follow(model, (news, isWhole) => {
    if (isWhole || news.drawn_pipelines !== undefined) show(news.drawn_pipelines ?? "");
  });
}

export default { render };
