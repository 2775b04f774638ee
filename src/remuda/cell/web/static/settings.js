// The settings: values that are shown when they are asked for, tokens that are shown once, suggestions, dialogs.

import { confirmed } from "./actions.js";
import { call } from "./api.js";
import { refresh } from "./live.js";
import { showMessage } from "./messages.js";

const SUGGEST_MILLISECONDS = 250;

async function attempt(button, action) {
  button.disabled = true;
  try {
    await action();
  } catch (error) {
    showMessage(error.message, { isProblem: true });
  } finally {
    button.disabled = false;
  }
}

/** Show or hide a value: it is read from the API each time, and is not part of the page. */
async function reveal(button) {
  const place = document.getElementById(button.dataset.into);
  if (button.dataset.shown) {
    delete button.dataset.shown;
    place.textContent = "••••••";
    button.textContent = "Show";
    return;
  }
  const { value } = await call("GET", button.dataset.reveal);
  place.textContent = value === "" ? "(empty)" : value;
  button.dataset.shown = "yes";
  button.textContent = "Hide";
}

function showSecret(id, token) {
  const box = document.getElementById(id);
  box.querySelector("[data-secret]").textContent = token;
  box.hidden = false;
  box.scrollIntoView({ block: "nearest" });
}

document.addEventListener("click", (event) => {
  const button = event.target.closest("button");
  if (!button) return;
  if ("close" in button.dataset) button.closest("dialog").close();
  if (button.dataset.reveal) attempt(button, () => reveal(button));
  if ("refresh" in button.dataset) attempt(button, refresh);
  if (button.dataset.rotate) {
    attempt(button, async () => {
      if (!(await confirmed(button.dataset.question))) return;
      showSecret(button.dataset.shows, (await call("POST", button.dataset.rotate, {})).token);
      await refresh();
    });
  }
});

// A form with data-shows has created a token.
document.addEventListener("done", async (event) => {
  const { shows } = event.target.dataset;
  if (!shows) return;
  showSecret(shows, event.detail.token);
  event.target.reset();
  await refresh();
});

// A form with data-allow: the API wants the id of a project or group, people know its path.
document.addEventListener("submit", (event) => {
  const form = event.target;
  if (!form.dataset.allow) return;
  event.preventDefault();
  attempt(form.querySelector("button"), async () => {
    const path = form.querySelector("input").value.trim();
    const found = await call("GET", form.dataset.finds + encodeURIComponent(path));
    await call("POST", form.dataset.allow, { [form.dataset.sends]: found.id });
    form.reset();
    await refresh();
  });
});

// Suggestions of users while one types.
for (const input of document.querySelectorAll("[data-suggest]")) {
  let timer = 0;
  let asked = null;
  input.addEventListener("input", () => {
    clearTimeout(timer);
    timer = setTimeout(async () => {
      asked?.abort();
      asked = new AbortController();
      if (input.value.length < 2) return;
      try {
        const users = await call("GET", input.dataset.suggest + encodeURIComponent(input.value), undefined, { signal: asked.signal });
        input.list.replaceChildren(...users.map(({ username, name }) => new Option(name, username)));
      } catch {
        // Suggestions are only a help: who may not list users types the whole name.
      }
    }, SUGGEST_MILLISECONDS);
  });
}

for (const input of document.querySelectorAll("[data-zone]")) {
  input.list.replaceChildren(...Intl.supportedValuesOf("timeZone").map((zone) => new Option(zone, zone)));
}
