// Buttons and forms that call the API.
//
// <button data-call="POST /api/..." data-confirm="Question?" data-done="/address" data-body='{"a": 1}'>
// <form data-call="POST /api/..." data-done="/address">: its fields become the JSON body. A field with data-type is
// converted: "number", "number-or-null", "flag" (a checkbox), "list" (words separated by commas), "numbers", "lines",
// "json", "choice" (checkboxes with one name: the list of those that are checked). Empty fields without data-keep-empty
// are left out. In data-done, {name} is replaced by a field of the answer.

import { call } from "./api.js";
import { refresh } from "./live.js";
import { showMessage } from "./messages.js";

/** Ask in a dialog. Returns whether the user agreed. */
export function confirmed(question) {
  const dialog = document.getElementById("confirm");
  document.getElementById("confirm-text").textContent = question;
  dialog.returnValue = "no";
  dialog.showModal();
  return new Promise((resolve) => {
    dialog.addEventListener("close", () => resolve(dialog.returnValue === "yes"), { once: true });
  });
}

function readField(field) {
  switch (field.dataset.type) {
    case "number": return field.value === "" ? undefined : Number(field.value);
    case "number-or-null": return field.value === "" ? null : Number(field.value);
    case "flag": return field.checked;
    case "list": return field.value.split(",").map((word) => word.trim()).filter(Boolean);
    case "numbers": return field.value.split(",").map((word) => word.trim()).filter(Boolean).map(Number);
    case "json": return JSON.parse(field.value);
    case "lines": return field.value.split("\n").map((line) => line.trim()).filter(Boolean);
    default: return field.value === "" && !("keepEmpty" in field.dataset) ? undefined : field.value;
  }
}

/** Return the fields of a form as an object. */
export function readForm(form) {
  const body = {};
  for (const field of form.elements) {
    if (!field.name || field.disabled || (field.type === "radio" && !field.checked)) continue;
    if (field.dataset.type === "choice") {
      body[field.name] ??= [];
      if (field.checked) body[field.name].push(field.value);
      continue;
    }
    const value = readField(field);
    if (value !== undefined) body[field.name] = value;
  }
  return body;
}

async function perform(element, body) {
  if (element.dataset.confirm && !(await confirmed(element.dataset.confirm))) return;
  const [method, path] = element.dataset.call.split(/ (.*)/s);
  const controls = element.matches("form") ? element.querySelectorAll("button") : [element];
  for (const control of controls) control.disabled = true;
  try {
    const answer = await call(method, path, body);
    element.dispatchEvent(new CustomEvent("done", { bubbles: true, detail: answer }));
    if (element.dataset.said) showMessage(element.dataset.said);
    if (element.dataset.done) {
      location.href = element.dataset.done.replace(/\{(\w+)\}/g, (_, name) => encodeURIComponent(answer[name]));
    } else if (!("stay" in element.dataset)) {
      if (element.matches("form")) element.reset();
      await refresh();
    }
  } catch (error) {
    showMessage(error.message, { isProblem: true });
  } finally {
    for (const control of controls) control.disabled = false;
  }
}

document.addEventListener("click", (event) => {
  const opener = event.target.closest("[data-open]");
  if (opener) document.getElementById(opener.dataset.open).showModal();
  const copier = event.target.closest("[data-copy]");
  if (copier) copyText(document.getElementById(copier.dataset.copy));
  const button = event.target.closest("button[data-call]");
  if (button) perform(button, button.dataset.body ? JSON.parse(button.dataset.body) : undefined);
});

async function copyText(element) {
  try {
    await navigator.clipboard.writeText(element.textContent.trim());
    showMessage("Copied.");
  } catch {
    // Without HTTPS browsers give pages no clipboard: select it instead.
    getSelection().selectAllChildren(element);
    showMessage("Selected; press Ctrl-C to copy.");
  }
}

document.addEventListener("submit", (event) => {
  if (!event.target.matches("form[data-call]")) return;
  event.preventDefault();
  let body;
  try {
    body = readForm(event.target);
  } catch (error) {
    showMessage(`This is not valid JSON: ${error.message}`, { isProblem: true });
    return;
  }
  perform(event.target, body);
});
