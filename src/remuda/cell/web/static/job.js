// The page of a job: the form that plays a manual job.

import { call } from "./api.js";
import { refresh } from "./live.js";
import { showMessage } from "./messages.js";

/** The pairs in lines of NAME=value. Throws an Error that names the first line without a name. */
export function readPairs(text) {
  return text.split("\n").filter((line) => line.trim()).map((line) => {
    const place = line.indexOf("=");
    if (place < 1) throw new Error(`“${line.slice(0, 60)}” is no NAME=value.`);
    return [line.slice(0, place).trim(), line.slice(place + 1)];
  });
}

/** A value as JSON if it is any, else as text. */
export function readValue(text) {
  try {
    return JSON.parse(text);
  } catch {
    return text;
  }
}

document.addEventListener("submit", async (event) => {
  const form = event.target;
  if (!form.matches("form[data-job-call]")) return;
  event.preventDefault();
  const button = form.querySelector("button");
  button.disabled = true;
  try {
    const variables = readPairs(form.elements.variables.value);
    const inputs = readPairs(form.elements.inputs.value);
    await call("POST", form.dataset.jobCall, {
      job_variables_attributes: variables.map(([key, value]) => ({ key, value })),
      job_inputs: Object.fromEntries(inputs.map(([name, value]) => [name, readValue(value)])),
    });
    form.closest("dialog").close();
    await refresh();
  } catch (error) {
    form.closest("dialog").close();
    showMessage(error.message, { isProblem: true });
  } finally {
    button.disabled = false;
  }
});
