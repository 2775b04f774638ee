// The page of a pipeline: highlights in the graph by needs what a job waits for, and what waits for it; opens the part
// of the page that the address names.

function highlight(graph, name) {
  const near = [];
  for (const path of graph.querySelectorAll(".edges path")) {
    const isNear = name !== undefined && (path.dataset.before === name || path.dataset.after === name);
    path.classList.toggle("near", isNear);
    if (isNear) near.push(path);
  }
  graph.classList.toggle("focused", near.length > 0);
}

function follow(event) {
  const graph = event.target.closest?.(".needs");
  if (graph) highlight(graph, event.target.closest(".job")?.dataset.name);
}

document.addEventListener("mouseover", follow);
document.addEventListener("focusin", follow);
for (const type of ["mouseout", "focusout"]) {
  document.addEventListener(type, (event) => {
    const graph = event.target.closest?.(".needs");
    if (graph && !graph.contains(event.relatedTarget)) highlight(graph, undefined);
  });
}

function openTarget() {
  const target = location.hash.length > 1 && document.getElementById(location.hash.slice(1));
  if (target && target.matches("details")) target.open = true;
}

addEventListener("hashchange", openTarget);
openTarget();
