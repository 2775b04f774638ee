// Keyboard: "/" search, "j" and "k" through the entries of a list, "g" and a letter to a page, "?" help.
//
// Entries of a list are elements with data-entry; each contains the link that Enter opens.

const PLACES = { o: "/", p: "/projects", q: "/queue", r: "/runners", a: "/admin" };
const SEQUENCE_MILLISECONDS = 1500;
let goingSince = 0;

function isTyping(target) {
  return target.closest("input, textarea, select, [contenteditable], dialog[open], [data-takes-keys]");
}

function move(step) {
  const entries = [...document.querySelectorAll("[data-entry]")].filter((entry) => entry.offsetParent !== null);
  if (!entries.length) return;
  const current = entries.findIndex((entry) => entry.contains(document.activeElement));
  const next = entries[Math.min(Math.max(current + step, 0), entries.length - 1)];
  (next.querySelector("a") ?? next).focus();
  next.scrollIntoView({ block: "nearest" });
}

document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || isTyping(event.target)) return;
  if (performance.now() - goingSince < SEQUENCE_MILLISECONDS && PLACES[event.key]) {
    goingSince = 0;
    location.href = PLACES[event.key];
    return;
  }
  goingSince = 0;
  switch (event.key) {
    case "/": {
      const search = document.getElementById("search");
      if (!search) return;
      search.focus();
      break;
    }
    case "j": move(1); break;
    case "k": move(-1); break;
    case "g": goingSince = performance.now(); break;
    case "?": document.getElementById("keys")?.showModal(); break;
    default: return;
  }
  event.preventDefault();
});
