// Keeps the page live. Events of the cell (jobs, pipelines, runners) change statuses at once; parts of the page that an
// event may have changed are read again from the server, and only what differs is replaced.
//
// <body data-events="kind=job,pipeline&pipeline=7">: which events the page wants. Elements with data-job-status,
// data-pipeline-status or data-runner-status show the status of that id. <element id="..." data-live>: read again.

import { morph } from "./morph.js";
import { subscribe } from "./events.js";
import { showTimes } from "./times.js";

const LEAST_PAUSE_MILLISECONDS = 1000;
// A page that takes long to read is read less often, so that neither the cell nor the browser is busy with it alone.
const PAUSE_FACTOR = 5;
const MOST_PAUSE_MILLISECONDS = 30_000;
let pauseMilliseconds = LEAST_PAUSE_MILLISECONDS;
let refreshAt = 0;
let timer = 0;
let running = null;

/** Show a status in all elements for it. */
function showStatus(kind, id, status) {
  for (const element of document.querySelectorAll(`[data-${kind}-status="${CSS.escape(id)}"]`)) {
    if (element.dataset.status === status) continue;
    element.dataset.status = status;
    element.textContent = status.replaceAll("_", " ");
  }
}

async function readAgain() {
  const response = await fetch(location.href, { headers: { Accept: "text/html" } });
  if (response.redirected && new URL(response.url).pathname === "/-/sign-in") {
    location.href = response.url;
    return;
  }
  if (!response.ok) return;
  const page = parse(await response.text());
  readWanted(page.body.dataset.events ?? "");
  for (const part of document.querySelectorAll("[data-live]")) {
    const fresh = page.getElementById(part.id);
    if (fresh) morph(part, fresh);
  }
  showTimes();
  document.dispatchEvent(new Event("refreshed"));
}

const policy = window.trustedTypes?.createPolicy("remuda-page", { createHTML: (text) => text });

// The text is a page of this cell, which escapes everything that comes from others. Nothing in it is executed.
function parse(text) {
  return new DOMParser().parseFromString(policy ? policy.createHTML(text) : text, "text/html");
}

/** Read the live parts of the page again, at once. */
export async function refresh() {
  clearTimeout(timer);
  timer = 0;
  refreshAt = performance.now();
  try {
    running = readAgain();
    await running;
    const took = performance.now() - refreshAt;
    pauseMilliseconds = Math.min(Math.max(LEAST_PAUSE_MILLISECONDS, took * PAUSE_FACTOR), MOST_PAUSE_MILLISECONDS);
  } catch {
    // The cell cannot be reached; the event stream says so and begins again.
  } finally {
    running = null;
  }
}

/** Read the live parts again soon; many calls in a short time become one. */
export function refreshSoon() {
  if (timer || document.hidden) return;
  const pause = Math.max(refreshAt + pauseMilliseconds - performance.now(), 100);
  timer = setTimeout(async () => {
    timer = 0;
    if (running) await running.catch(() => {});
    await refresh();
  }, pause);
}

function showConnection(state) {
  const place = document.getElementById("live-state");
  place.dataset.state = state;
  place.textContent = { open: "live", lost: "connection lost, trying again", ended: "not signed in any more" }[state] ?? "";
}

const wanted = new URLSearchParams(document.body.dataset.events);

/** Take over which events the page wants now: a pipeline may have started others. */
function readWanted(text) {
  for (const [name, value] of new URLSearchParams(text)) wanted.set(name, value);
}

// Who is not signed in gets no events.
if (document.body.dataset.events !== undefined && document.querySelector("meta[name=csrf]").content) {
  subscribe(wanted, {
    onEvent(kind, data) {
      showStatus(kind, String(data.id), data.status);
      document.dispatchEvent(new CustomEvent(`live:${kind}`, { detail: data }));
      if (document.querySelector("[data-live]")) refreshSoon();
    },
    // Events were missed: the page is read again.
    onReset: refreshSoon,
    onState: showConnection,
  });
  document.addEventListener("visibilitychange", () => document.hidden || refreshSoon());
}
