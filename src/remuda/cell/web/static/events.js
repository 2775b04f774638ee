// Subscribes to the cell's event stream. All tabs of a browser share one connection, in a shared worker: with HTTP/1.1 a
// browser opens six connections to a host, and each stream takes one for as long as the page is open.

import { startSharedWorker } from "./workers.js";

const STREAM = "/api/remuda/v1/events";

/** Whether an event is one of those that a page wants: `wanted` has kind, project, pipeline and job, as the API. */
function fits(wanted, kind, data) {
  const kinds = (wanted.get("kind") ?? "").split(",").filter(Boolean);
  if (kinds.length && !kinds.includes(kind)) return false;
  const [project, pipeline, job] = ["project", "pipeline", "job"].map((name) => wanted.get(name));
  if (project && String(data.project_id) !== project) return false;
  // Several pipelines are separated by commas.
  const of = String(kind === "pipeline" ? data.id : data.pipeline_id);
  if (pipeline && !pipeline.split(",").includes(of)) return false;
  return !(job && (kind !== "job" || String(data.id) !== job));
}

/** Open the stream. `listeners`: onEvent(kind, data), onReset() and onState("open", "lost" or "ended"). */
export function openStream(listeners) {
  let stream = null;
  const open = () => {
    stream = new EventSource(STREAM);
    for (const kind of ["job", "pipeline", "runner"]) {
      stream.addEventListener(kind, (event) => listeners.onEvent(kind, JSON.parse(event.data)));
    }
    stream.addEventListener("reset", () => listeners.onReset());
    stream.addEventListener("open", () => listeners.onState("open"));
    stream.addEventListener("error", () => {
      // CLOSED: the cell has refused it, perhaps because the session has ended.
      listeners.onState(stream.readyState === EventSource.CLOSED ? "ended" : "lost");
    });
  };
  open();
  return { close: () => stream.close() };
}

/** Subscribe to the events that `wanted` selects, until the page goes. */
export function subscribe(wanted, listeners) {
  const filtered = {
    ...listeners,
    onEvent: (kind, data) => fits(wanted, kind, data) && listeners.onEvent(kind, data),
  };
  if (!window.SharedWorker) {
    openStream(filtered);
    return;
  }
  const worker = startSharedWorker("events_worker.js", "remuda events");
  worker.port.onmessage = ({ data: [what, ...rest] }) => filtered[what](...rest);
  worker.port.start();
  addEventListener("pagehide", () => worker.port.postMessage("close"));
  // A page from the back-forward cache has missed events.
  addEventListener("pageshow", (event) => {
    if (!event.persisted) return;
    worker.port.postMessage("open");
    listeners.onReset();
  });
}
