// Shows <time> elements relative to now, with the exact time on hover, and counts running durations.
//
// <time datetime="..."> becomes "5 min ago"; <span data-since="SECONDS"> shows how long it is since that Unix time.

const UNITS = [["d", 86400], ["h", 3600], ["min", 60], ["s", 1]];
const TICK_MILLISECONDS = 1000;

/** Format a duration by its two largest units, as the server does. */
export function formatDuration(seconds) {
  if (seconds < 10) return `${Math.max(seconds, 0).toFixed(1)} s`;
  const parts = [];
  let rest = Math.floor(seconds);
  for (const [unit, size] of UNITS) {
    const count = Math.floor(rest / size);
    rest %= size;
    if (count) parts.push(`${count} ${unit}`);
    else if (parts.length) break;
    if (parts.length === 2) break;
  }
  return parts.join(" ");
}

/** Format a moment relative to now: "just now", "5 min ago", "in 2 h". */
export function formatRelative(moment, now = Date.now()) {
  const seconds = (now - moment) / 1000;
  const size = Math.abs(seconds);
  if (size < 10) return "just now";
  const [unit, length] = UNITS.find(([, length]) => size >= length);
  const text = `${Math.floor(size / length)} ${unit}`;
  return seconds < 0 ? `in ${text}` : `${text} ago`;
}

function setText(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

/** Update all times of a part of the page. */
export function showTimes(root = document) {
  const now = Date.now();
  for (const element of root.querySelectorAll("time[datetime]:not([data-exact])")) {
    const moment = Date.parse(element.dateTime);
    if (Number.isNaN(moment)) continue;
    if (!element.title) element.title = new Date(moment).toLocaleString();
    setText(element, formatRelative(moment, now));
  }
  for (const element of root.querySelectorAll("[data-since]")) {
    setText(element, formatDuration(Math.max(now / 1000 - Number(element.dataset.since), 0)));
  }
}

showTimes();
setInterval(() => document.hidden || showTimes(), TICK_MILLISECONDS);
document.addEventListener("visibilitychange", () => document.hidden || showTimes());
