// The form that starts a pipeline: sends inputs and variables, and shows the mistakes of the file with their places.

import { call } from "./api.js";

const form = document.getElementById("start");
const rows = document.getElementById("variable-rows");
const refusal = document.getElementById("refusal");

document.getElementById("ref").addEventListener("change", (event) => {
  if (event.target.value.trim()) event.target.form.requestSubmit();
});

document.getElementById("add-variable").addEventListener("click", () => {
  const row = document.getElementById("variable-row").content.cloneNode(true);
  rows.append(row);
  rows.lastElementChild.querySelector("input").focus();
});

rows.addEventListener("click", (event) => {
  if (!event.target.closest("[data-remove]")) return;
  event.target.closest(".variable-row").remove();
  document.getElementById("add-variable").focus();
});

// A field with its default is left out: the default may depend on other inputs. The API parses texts as the input's type.
function changedFields(kind) {
  const values = {};
  for (const field of form.querySelectorAll(`[data-${kind}]`)) {
    if (field.value !== field.dataset.default) values[field.dataset[kind]] = field.value;
  }
  return values;
}

function readBody() {
  const variables = changedFields("variable");
  const files = [];
  for (const row of rows.querySelectorAll(".variable-row")) {
    const [kind, name, value] = row.querySelectorAll("select, input, textarea");
    if (!name.value.trim()) continue;
    variables[name.value.trim()] = value.value;
    if (kind.value === "file") files.push(name.value.trim());
  }
  return { ref: form.dataset.ref, source: "web", inputs: changedFields("input"), variables, file_variables: files };
}

function element(tag, text) {
  const made = document.createElement(tag);
  made.textContent = text;
  return made;
}

function showRefusal(error) {
  const mistakes = error.body?.mistakes ?? [];
  const list = document.createElement("ul");
  for (const mistake of mistakes) {
    const item = document.createElement("li");
    const key = mistake.key ? `${mistake.key}: ` : "";
    const suggestion = mistake.suggestion ? `; ${mistake.suggestion}` : "";
    item.append(element("code", `${mistake.file}:${mistake.line}:${mistake.column}`), ` ${key}${mistake.message}${suggestion}`);
    list.append(item);
  }
  const title = mistakes.length ? "The pipeline was not started, because its file or its inputs have mistakes:" : error.message;
  refusal.replaceChildren(element("p", title), ...(mistakes.length ? [list] : []));
  refusal.hidden = false;
  refusal.scrollIntoView({ block: "nearest" });
}

form.addEventListener("submit", async (event) => {
  event.preventDefault();
  const button = form.querySelector("button[type=submit]");
  button.disabled = true;
  refusal.hidden = true;
  try {
    const pipeline = await call("POST", `/api/remuda/v1/projects/${form.dataset.project}/pipelines`, readBody());
    location.href = form.dataset.done + pipeline.id;
  } catch (error) {
    showRefusal(error);
    button.disabled = false;
  }
});
