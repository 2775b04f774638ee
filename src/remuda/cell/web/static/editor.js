// The pipeline editor: shows line numbers and mistakes while one types, the jobs that the file makes, and commits it.

import { call, RefusedError } from "./api.js";
import { readLint } from "./editor_lint.js";
import { drawGraph } from "./editor_graph.js";
import { indent, lineAndColumn, offsetOf } from "./editor_text.js";
import { showMessage } from "./messages.js";

const PAUSE_MILLISECONDS = 350;
const setup = JSON.parse(document.getElementById("workbench").dataset.setup);
const source = document.getElementById("source");
const gutter = document.getElementById("gutter");
const verdict = document.getElementById("verdict");
const form = document.getElementById("commit");
const encode = encodeURIComponent;
const root = `/${setup.project}`;

let saved = setup.isNew ? null : source.value;
let marks = new Map();
let lineCount = 0;
let checking = null;
let timer = 0;
let leaving = false;
let awaited = null;

function isChanged() {
  return !source.readOnly && source.value !== saved && !(saved === null && source.value === source.defaultValue);
}

// Line numbers

function showLines() {
  const count = source.value.split("\n").length;
  while (lineCount < count) {
    const row = document.createElement("div");
    row.textContent = String(++lineCount);
    gutter.append(row);
  }
  while (lineCount > count) {
    gutter.lastChild.remove();
    lineCount--;
  }
  gutter.scrollTop = source.scrollTop;
}

function showMarks() {
  for (const row of gutter.querySelectorAll(".bad, .warn")) row.classList.remove("bad", "warn");
  for (const [line, kind] of marks) gutter.children[line - 1]?.classList.add(kind);
}

function showPlace() {
  const { line, column } = lineAndColumn(source.value, source.selectionStart);
  document.getElementById("place").textContent = `Line ${line}, column ${column}`;
  gutter.querySelector(".here")?.classList.remove("here");
  gutter.children[line - 1]?.classList.add("here");
}

/** Put the cursor at a place of the text, and show it. */
function jump(line, column) {
  const offset = offsetOf(source.value, line, column);
  source.focus();
  source.setSelectionRange(offset, offset);
  const height = gutter.firstChild?.getBoundingClientRect().height ?? 20;
  source.scrollTop = Math.max((line - 4) * height, 0);
  source.scrollLeft = 0;
  showPlace();
}

// Typing

/** Replace the text so that the browser's undo knows it. */
function replace(start, end, text, selection) {
  source.setSelectionRange(start, end);
  if (!document.execCommand("insertText", false, text)) {
    source.setRangeText(text, start, end, "end");
    source.dispatchEvent(new Event("input"));
  }
  source.setSelectionRange(selection[0], selection[1]);
}

source.addEventListener("keydown", (event) => {
  // A keyboard user leaves the text with Escape and Tab.
  if (event.key === "Escape") {
    leaving = true;
    return;
  }
  if (event.key === "Tab" && !leaving && !source.readOnly && !event.ctrlKey && !event.altKey && !event.metaKey) {
    event.preventDefault();
    const change = indent(source.value, source.selectionStart, source.selectionEnd, event.shiftKey);
    if (change) replace(change.start, change.end, change.text, change.selection);
    return;
  }
  if (event.key === "Enter" && !source.readOnly && !event.isComposing && !event.ctrlKey && !event.metaKey) {
    const before = source.value.slice(source.value.lastIndexOf("\n", source.selectionStart - 1) + 1, source.selectionStart);
    const blanks = before.match(/^ */)[0];
    if (blanks) {
      event.preventDefault();
      const end = source.selectionStart + 1 + blanks.length;
      replace(source.selectionStart, source.selectionEnd, `\n${blanks}`, [end, end]);
    }
  }
  if (event.key === "s" && (event.ctrlKey || event.metaKey)) {
    event.preventDefault();
    document.getElementById("message")?.focus();
  }
  if (event.key !== "Shift") leaving = false;
});
source.addEventListener("blur", () => { leaving = false; });
source.addEventListener("scroll", () => { gutter.scrollTop = source.scrollTop; });
source.addEventListener("input", () => {
  showLines();
  showPlace();
  checkSoon();
});
document.addEventListener("selectionchange", () => document.activeElement === source && showPlace());

addEventListener("beforeunload", (event) => {
  if (isChanged()) event.preventDefault();
});

// Checking

function checkSoon() {
  clearTimeout(timer);
  timer = setTimeout(check, PAUSE_MILLISECONDS);
}

async function check() {
  checking?.abort();
  const own = (checking = new AbortController());
  const text = source.value;
  try {
    const answer = await askForCheck(text, own.signal);
    if (!own.signal.aborted) showAnswer(readLint(answer, setup.path), answer);
  } catch (error) {
    if (error.name === "AbortError" || own.signal.aborted) return;
    verdict.dataset.state = "unknown";
    verdict.textContent = `Not checked: ${error.message}`;
  }
}

function askForCheck(content, signal) {
  // Reporters may not check a text of their own, and cannot change this one: the cell checks the stored file.
  if (!setup.canCheck) {
    const query = new URLSearchParams({ include_jobs: "true", content_ref: setup.ref, ref: setup.isBranch ? setup.ref : "" });
    return call("GET", `${setup.api}/ci/lint?${query}`, undefined, { signal });
  }
  const body = { content, include_jobs: true, ...(setup.ref ? { ref: setup.ref } : {}) };
  return call("POST", `${setup.api}/ci/lint`, body, { signal });
}

function showAnswer(problems, answer) {
  const mistakes = problems.filter((problem) => problem.kind === "bad");
  const warnings = problems.length - mistakes.length;
  verdict.dataset.state = answer.valid ? "valid" : "invalid";
  const count = (number, word) => `${number} ${word}${number === 1 ? "" : "s"}`;
  verdict.textContent = answer.valid
    ? `Valid: ${count(answer.jobs?.length ?? 0, "job")}${warnings ? `, ${count(warnings, "warning")}` : ""}`
    : count(mistakes.length, "mistake");
  showProblems(problems);
  marks = new Map();
  for (const { kind, line, isHere } of problems) if (isHere && line && marks.get(line) !== "bad") marks.set(line, kind);
  showMarks();
  const graph = document.getElementById("graph");
  if (answer.valid || answer.jobs?.length) {
    delete graph.dataset.stale;
    document.getElementById("graph-note").textContent = "";
    drawGraph(graph, answer.jobs ?? []);
    document.getElementById("merged").textContent = answer.merged_yaml ?? "";
  } else if (graph.querySelector(".stages")) {
    graph.dataset.stale = "";
    document.getElementById("graph-note").textContent = "of the last text without mistakes";
  }
  showLeftOut(answer.left_out ?? []);
  showIncludes(answer.includes ?? []);
}

function element(name, text, className = "") {
  const made = document.createElement(name);
  made.textContent = text;
  if (className) made.className = className;
  return made;
}

function showProblems(problems) {
  const items = problems.map((problem) => {
    const item = document.createElement("li");
    item.className = problem.kind;
    item.dataset.test = problem.kind === "bad" ? "mistake" : "warning";
    const button = document.createElement("button");
    button.type = "button";
    const file = problem.isHere ? "" : `${problem.file}:`;
    const place = problem.line ? `${file}${problem.line}:${problem.column}` : "";
    const kind = problem.kind === "bad" ? "Mistake" : "Warning";
    button.append(element("span", place || kind, "where"), element("span", problem.message));
    button.firstChild.title = kind;
    if (problem.suggestion) button.append(element("span", problem.suggestion, "advice"));
    if (problem.isHere && problem.line) button.addEventListener("click", () => jump(problem.line, problem.column));
    item.append(button);
    return item;
  });
  document.getElementById("mistakes").replaceChildren(...items);
}

function showLeftOut(jobs) {
  const part = document.getElementById("left-out");
  part.hidden = !jobs.length;
  part.querySelector("ul").replaceChildren(
    ...jobs.map(({ name, reason }) => {
      const item = element("li", "");
      item.append(element("b", name), `: ${reason}`);
      return item;
    }),
  );
}

function showIncludes(includes) {
  document.getElementById("includes-part").hidden = !includes.length;
  document.getElementById("includes").replaceChildren(
    ...includes.map(({ type, location, extra }) => {
      const item = element("li", "");
      item.append(element("span", type, "tag"), " ");
      if (type === "local") {
        const link = element("a", location);
        const path = location.replace(/^\/+/, "").split("/").map(encode).join("/");
        link.href = `${root}/-/blob/${encode(setup.base)}/${path}`;
        item.append(link);
      } else {
        item.append([extra?.project, location].filter(Boolean).join(": "), extra?.ref ? ` at ${extra.ref}` : "");
      }
      return item;
    }),
  );
}

// Committing

form?.addEventListener("submit", async (event) => {
  event.preventDefault();
  const button = form.querySelector("button");
  button.disabled = true;
  try {
    await commit(source.value, document.getElementById("message").value, document.getElementById("branch").value.trim());
  } catch (error) {
    if (!(error instanceof RefusedError)) throw error;
    showMessage(`Nothing was committed: ${error.message}`, { isProblem: true });
  } finally {
    button.disabled = false;
  }
});

async function commit(content, message, branch) {
  const isOther = branch !== setup.base || !setup.isBranch;
  const start = isOther && !setup.isEmpty ? { start_branch: setup.base } : {};
  const known = setup.lastCommit ? { last_commit_id: setup.lastCommit } : {};
  await call(setup.isNew ? "POST" : "PUT", `${setup.api}/repository/files/${encode(setup.path)}`, {
    branch,
    commit_message: message,
    // A text field knows only \n.
    content: setup.hasCrlf ? content.replaceAll("\n", "\r\n") : content,
    ...start,
    ...(setup.isNew ? {} : known),
  });
  saved = content;
  const { commit: made } = await call("GET", `${setup.api}/repository/branches/${encode(branch)}`);
  if (isOther && !setup.isEmpty) {
    // The page is about another ref: that of the new branch is read anew, with its own history.
    history.replaceState(null, "", `?ref=${encode(branch)}`);
  }
  Object.assign(setup, { isNew: false, isEmpty: false, isBranch: true, base: branch, ref: branch, lastCommit: made.id });
  const ref = document.getElementById("ref");
  if (ref) ref.value = branch;
  awaited = made.id;
  const result = document.getElementById("result");
  const link = element("a", made.short_id, "sha");
  link.href = `${root}/-/commit/${made.id}`;
  const pipeline = element("span", "No pipeline has started for it yet.", "soft");
  pipeline.id = "pipeline";
  pipeline.dataset.test = "pipeline";
  result.replaceChildren("Committed ", link, ` to ${branch}. `, pipeline);
  result.hidden = false;
  await showPipeline();
}

/** Show the pipeline of the commit. It may start a little later; then an event comes. */
async function showPipeline() {
  const sha = awaited;
  const [pipeline] = await call("GET", `${setup.api}/pipelines?sha=${sha}&per_page=1`);
  if (!pipeline || awaited !== sha) return;
  awaited = null;
  const link = element("a", `Pipeline #${pipeline.id}`);
  link.href = `${root}/-/pipelines/${pipeline.id}`;
  const status = element("span", pipeline.status.replaceAll("_", " "), "status");
  status.dataset.status = pipeline.status;
  status.dataset.pipelineStatus = pipeline.id;
  const place = document.getElementById("pipeline");
  place.className = "";
  place.replaceChildren(link, " ", status);
}

document.addEventListener("live:pipeline", () => awaited && showPipeline().catch(() => {}));

showLines();
showPlace();
// Without a stored file there is nothing that a reporter could have checked.
if (setup.canCheck || !setup.isNew) check();
