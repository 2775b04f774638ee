// Draws the jobs of a checked file: a column for each stage, and lines for needs.

const SVG = "http://www.w3.org/2000/svg";
const MOST_JOBS = 400;
const MOST_LINES = 1500;
const observers = new WeakMap();

function groupByStage(jobs) {
  const stages = new Map();
  for (const job of jobs) {
    if (!stages.has(job.stage)) stages.set(job.stage, []);
    stages.get(job.stage).push(job);
  }
  return stages;
}

function describe(job) {
  const words = [];
  if (job.when && job.when !== "on_success") words.push(job.when.replaceAll("_", " "));
  if (job.allow_failure) words.push("may fail");
  if (job.environment) words.push(`environment ${job.environment}`);
  if (job.needs) words.push(job.needs.length ? `needs ${job.needs.map((need) => need.name).join(", ")}` : "starts at once");
  return words.join(" · ");
}

/** Show the jobs in `place`. Jobs are in the order of their stages. */
export function drawGraph(place, jobs) {
  if (!jobs.length) {
    const text = document.createElement("p");
    text.className = "soft";
    text.textContent = "The file makes no job for this ref.";
    place.replaceChildren(text);
    return;
  }
  const columns = document.createElement("div");
  columns.className = "stages";
  const boxes = new Map();
  let shown = 0;
  for (const [stage, own] of groupByStage(jobs)) {
    const column = document.createElement("div");
    column.className = "stage";
    const title = document.createElement("h3");
    title.textContent = stage;
    const list = document.createElement("ul");
    for (const job of own) {
      if (++shown > MOST_JOBS) break;
      const box = document.createElement("li");
      box.dataset.test = "graph-job";
      box.append(job.name);
      const words = describe(job);
      if (words) {
        const note = document.createElement("span");
        note.className = "soft";
        note.textContent = words;
        box.append(note);
      }
      boxes.set(job.name, box);
      list.append(box);
    }
    column.append(title, list);
    columns.append(column);
  }
  place.replaceChildren(columns);
  if (shown > MOST_JOBS) {
    const more = document.createElement("p");
    more.className = "soft";
    more.textContent = `${jobs.length - MOST_JOBS} more jobs are not drawn.`;
    place.append(more);
  }
  const lines = jobs.flatMap((job) => (job.needs ?? []).map((need) => [boxes.get(need.name), boxes.get(job.name)]));
  const pairs = lines.filter(([from, to]) => from && to).slice(0, MOST_LINES);
  observers.get(place)?.disconnect();
  if (!pairs.length) return;
  const drawing = document.createElementNS(SVG, "svg");
  drawing.setAttribute("aria-hidden", "true");
  columns.prepend(drawing);
  const draw = () => drawLines(drawing, columns, pairs);
  const observer = new ResizeObserver(draw);
  observers.set(place, observer);
  observer.observe(columns);
  draw();
}

function drawLines(drawing, columns, pairs) {
  const origin = columns.getBoundingClientRect();
  drawing.setAttribute("width", String(columns.scrollWidth));
  drawing.setAttribute("height", String(columns.scrollHeight));
  drawing.replaceChildren(
    ...pairs.map(([from, to]) => {
      const start = from.getBoundingClientRect();
      const end = to.getBoundingClientRect();
      const [x1, y1] = [start.right - origin.left, start.top + start.height / 2 - origin.top];
      const [x2, y2] = [end.left - origin.left, end.top + end.height / 2 - origin.top];
      const path = document.createElementNS(SVG, "path");
      // Jobs of one stage stand above each other: their line goes round the left side.
      const bend = x2 > x1 ? Math.max((x2 - x1) / 2, 12) : 18;
      const begin = x2 > x1 ? x1 : start.left - origin.left;
      const side = x2 > x1 ? begin + bend : begin - bend;
      path.setAttribute("d", `M${begin},${y1} C${side},${y1} ${x2 - bend},${y2} ${x2},${y2}`);
      return path;
    }),
  );
}
