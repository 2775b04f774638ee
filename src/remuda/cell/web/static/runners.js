// Pages about runners: creates a runner, shows its token once with the commands to paste, and gives it to projects.

import { readForm } from "./actions.js";
import { call } from "./api.js";
import { refresh } from "./live.js";
import { showMessage } from "./messages.js";

/** Show a token with the commands that use it. It is nowhere else, and gone when the page is left. */
function showToken({ id, token }) {
  const box = document.getElementById("token-box");
  for (const element of box.querySelectorAll("[data-template]")) {
    element.textContent = element.dataset.template.replaceAll("{token}", token);
  }
  if (id) document.getElementById("runner-link").href = `/runners/${encodeURIComponent(id)}`;
  box.hidden = false;
  box.focus();
  box.scrollIntoView({ block: "nearest" });
}

async function attempt(form, work) {
  const buttons = form.querySelectorAll("button");
  for (const button of buttons) button.disabled = true;
  try {
    await work();
  } catch (error) {
    showMessage(error.message, { isProblem: true });
  } finally {
    for (const button of buttons) button.disabled = false;
  }
}

/** Find the id of a group or project by its path. */
async function findId(kind, field) {
  const path = field.value.trim().replace(/^\/+|\/+$/g, "");
  if (!path) {
    field.focus();
    throw new Error(`Enter the path of the ${kind}.`);
  }
  return (await call("GET", `/api/v4/${kind}s/${encodeURIComponent(path)}`)).id;
}

const form = document.getElementById("new-runner");
if (form) {
  const type = document.getElementById("runner_type");
  const showFields = () => {
    for (const part of form.querySelectorAll("[data-for]")) part.hidden = part.dataset.for !== type.value;
  };
  type.addEventListener("change", showFields);
  showFields();
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    attempt(form, async () => {
      const body = readForm(form);
      if (document.getElementById("protected").checked) body.access_level = "ref_protected";
      if (type.value === "group_type") body.group_id = await findId("group", document.getElementById("group"));
      if (type.value === "project_type") body.project_id = await findId("project", document.getElementById("project"));
      showToken(await call("POST", "/api/v4/user/runners", body));
      form.hidden = true;
    });
  });
}

document.addEventListener("submit", (event) => {
  const link = event.target.closest("form[data-link-runner]");
  if (!link) return;
  event.preventDefault();
  attempt(link, async () => {
    const path = link.elements.project.value.trim();
    await call("POST", `/api/v4/projects/${encodeURIComponent(path)}/runners`, {
      runner_id: Number(link.dataset.linkRunner),
    });
    link.reset();
    await refresh();
  });
});

document.addEventListener("done", (event) => {
  if (event.target.closest("[data-shows-token]")) showToken(event.detail);
  const place = event.target.dataset.reveals;
  if (place) {
    document.getElementById(place).textContent = event.detail.token;
    document.getElementById(`${place}-box`).hidden = false;
  }
});
