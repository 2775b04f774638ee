// The viewer of a job's log. <section id="log" data-trace="/api/..." data-follow="/api/..." data-state="running">.
//
// A worker reads, indexes and searches the log (log_worker.js); RowView shows the lines that are seen (log_rows.js).
// #L123 and #L10-L20 in the address choose lines.

import { Rows, hiddenRanges } from "./log_index.js";
import { refreshSoon } from "./live.js";
import { RowView } from "./log_rows.js";
import { showMessage } from "./messages.js";
import { startWorker } from "./workers.js";

const FINAL = new Set(["success", "failed", "canceled", "skipped"]);
const KEPT_LINES = 4000;
const AROUND = 150;
const TYPING_MILLISECONDS = 200;
const TAIL_LINES = 120;
const STEPS_MILLISECONDS = 2000;

/** The lines that an address chooses, from 0: [first, last], or null. */
export function chosenIn(hash) {
  const match = /^#L(\d{1,10})(?:-L?(\d{1,10}))?$/.exec(hash);
  if (!match) return null;
  const ends = [Number(match[1]), Number(match[2] ?? match[1])].sort((a, b) => a - b);
  return ends[0] > 0 ? ends.map((number) => number - 1) : null;
}

class LogViewer {
  constructor(root) {
    this.root = root;
    this.part = (name) => root.querySelector(`[data-log="${name}"]`);
    this.rows = new Rows(0);
    this.sections = [];
    this.wanted = "";
    this.current = -1;
    this.showsTimes = false;
    this.wraps = false;
    this.hasNumbers = true;
    this._lines = new Map();
    this._asked = new Set();
    this._toggled = new Map();
    this._first = new Map();
    this._count = 0;
    this._epoch = 0;
    this._hits = [];
    this._hit = -1;
    this._id = 0;
    this._chosen = chosenIn(location.hash);
    this._hasToShowChosen = Boolean(this._chosen);
    this._isIndexed = false;
    this._state = root.dataset.state;
    const isLive = !FINAL.has(this._state);
    this._wantsEnd = !this._chosen && (isLive || this._state === "failed");
    this._follows = this._wantsEnd;
    this.scroller = this.part("scroller");
    this._view = new RowView(this.scroller, this);
    this._worker = startWorker("log_worker.js");
    this._worker.onmessage = ({ data }) => this[`_on_${data.kind}`](data);
    this._send("open", { traceUrl: root.dataset.trace, followUrl: root.dataset.follow, wantsEnd: this._wantsEnd });
    this._listen();
    this._setFollows(this._follows);
  }

  _send(kind, message = {}) {
    this._worker.postMessage({ kind, ...message });
  }

  // What RowView asks

  line(number) {
    return this._lines.get(number);
  }

  sectionAt(number) {
    return this._first.get(number);
  }

  isCollapsed(section) {
    return this._toggled.get(section.first) ?? section.isCollapsed;
  }

  isChosen(number) {
    return this._chosen !== null && number >= this._chosen[0] && number <= this._chosen[1];
  }

  want(from, count) {
    if (!this.hasNumbers) return;
    const first = Math.max(from - AROUND, 0);
    const key = Math.floor(from / 50);
    if (this._asked.has(key)) return;
    this._asked.add(key);
    this._send("lines", { id: key, from: first, count: count + 2 * AROUND });
  }

  // Messages of the worker

  _on_state({ epoch, lines, size, isIndexed, jobState, sections, tail }) {
    if (epoch !== this._epoch) this._reset(epoch);
    this._isIndexed = isIndexed;
    if (sections) {
      // A step of the job began or ended, which no event tells: the steps of the page are read again.
      if (this._count && isIndexed && !FINAL.has(this._state)) this._refreshSteps();
      this.sections = sections;
      this._first = new Map();
      for (const section of sections) if (!this._first.has(section.first)) this._first.set(section.first, section);
    }
    if (jobState) this._setState(jobState);
    // While only the end was wanted, the preview stays until all lines have numbers.
    if (this._wantsEnd && !isIndexed) return;
    if (!this.hasNumbers) {
      this.hasNumbers = true;
      this._lines.clear();
      this._view.forget();
    }
    // What was the last line may have been continued.
    if (this._count && lines >= this._count) this._forget(this._count - 1, 1);
    if (tail) this._keep(tail.from, tail.lines);
    this._count = lines;
    this._setRows();
    if (sections) this._view.forget();
    this.root.dataset.lines = lines;
    this.root.dataset.indexed = isIndexed;
    this.part("size").textContent = lines ? `${lines.toLocaleString("en")} lines, ${formatBytes(size)}` : "";
    const isEmpty = isIndexed && !lines;
    this.part("empty").hidden = !isEmpty;
    this.root.classList.toggle("is-empty", isEmpty);
    this.part("empty").textContent = this._emptyText();
    this._showHash();
    if (this._follows) this._view.scrollToEnd();
    else this._view.draw();
    this._markUsable();
  }

  _on_preview({ lines }) {
    if (this._isIndexed) return;
    this.hasNumbers = false;
    this._keep(0, lines);
    this.rows = new Rows(lines.length);
    this._view.forget();
    this._view.scrollToEnd();
    this._markUsable();
  }

  _on_lines({ id, epoch, from, lines }) {
    this._asked.delete(id);
    if (epoch !== this._epoch) return;
    this._keep(from, lines);
    this._view.draw();
    this._markUsable();
  }

  _on_hits({ id, hits, total, isDone }) {
    if (id !== this._id) return;
    const wasEmpty = !this._hits.length;
    for (const hit of hits) this._hits.push(hit);
    this._total = total;
    this._isSearched = isDone;
    if (wasEmpty && this._hits.length) this._goToHit(this._hitFrom(this._lineInSight()));
    this._showHits();
  }

  _on_piece({ part, parts, size, text }) {
    this.part("piece").textContent = text;
    this.part("piece-place").textContent = `part ${part + 1} of ${parts}, ${formatBytes(size)}`;
    this._piece = { ...this._piece, part, parts };
    this.part("piece-back").disabled = part === 0;
    this.part("piece-on").disabled = part + 1 >= parts;
    const dialog = this.part("whole");
    if (!dialog.open) dialog.showModal();
  }

  _on_problem({ text }) {
    const place = this.part("problem");
    place.textContent = text;
    place.hidden = !text;
    if (text) this._asked.clear();
  }

  // State

  _reset(epoch) {
    this._epoch = epoch;
    this._lines.clear();
    this._asked.clear();
    this._toggled.clear();
    this._count = 0;
    this.sections = [];
    this._first = new Map();
    this._search(this.part("search").value);
  }

  _refreshSteps() {
    this._stepsTimer ||= setTimeout(() => {
      this._stepsTimer = 0;
      refreshSoon();
    }, STEPS_MILLISECONDS);
  }

  _setRows() {
    const hidden = hiddenRanges(this.sections, (section) => this.isCollapsed(section), this._count);
    this.rows = new Rows(this._count, hidden);
  }

  _keep(from, lines) {
    for (const [place, line] of lines.entries()) {
      this._lines.delete(from + place);
      this._lines.set(from + place, line);
    }
    const keys = this._lines.keys();
    while (this._lines.size > KEPT_LINES) this._lines.delete(keys.next().value);
  }

  _forget(from, count) {
    for (let line = from; line < from + count; line++) this._lines.delete(line);
    this._view.forgetLines(from, count);
  }

  _setState(state) {
    this._state = state;
    this.root.dataset.state = state;
    this.part("follow").hidden = FINAL.has(state) || this._follows;
    this.part("following").textContent = FINAL.has(state) ? "" : this._follows ? "following" : "";
  }

  _setFollows(follows) {
    this._follows = follows;
    this._setState(this._state);
    this._send("follow", { count: follows ? TAIL_LINES : 0 });
    if (follows) this._view.scrollToEnd();
  }

  _emptyText() {
    if (FINAL.has(this._state)) return "The job has no log. It never ran, or its log was erased.";
    return "No log yet. It appears here as soon as a runner sends it.";
  }

  /** When the first lines were seen, for measurements. */
  _markUsable() {
    if (this.root.dataset.usable || !this._lines.size) return;
    requestAnimationFrame(() => { this.root.dataset.usable ||= Math.round(performance.now()); });
  }

  // Lines in the address

  _showHash() {
    if (!this._hasToShowChosen || this._count <= this._chosen[0]) return;
    this._hasToShowChosen = false;
    this._reveal(this._chosen[0]);
  }

  /** Open the collapsed sections around a line, and scroll to it. */
  _reveal(line) {
    for (const section of this.sections) {
      const isInside = section.first < line && (section.end < 0 || line < section.end);
      if (isInside && this.isCollapsed(section)) this._toggled.set(section.first, false);
    }
    this._setRows();
    this._view.forget();
    this._view.show(line);
  }

  _choose(first, last, { scrolls = false } = {}) {
    this._chosen = [Math.min(first, last), Math.max(first, last)];
    const [from, to] = this._chosen;
    history.replaceState(null, "", from === to ? `#L${from + 1}` : `#L${from + 1}-L${to + 1}`);
    if (scrolls) {
      this._setFollows(false);
      this._reveal(from);
    }
    this._view.forget();
  }

  // Search

  _search(text) {
    this._id++;
    this._hits = [];
    this._hit = this.current = -1;
    this._total = 0;
    this._isSearched = false;
    this.wanted = text.toLowerCase();
    this._view.forget();
    if (text) this._send("search", { id: this._id, text });
    else this._send("stop");
    this._showHits();
  }

  _lineInSight() {
    const row = this.scroller.scrollTop / Math.max(this.scroller.scrollHeight, 1) * this.rows.count;
    return this.rows.count ? this.rows.lineAt(Math.min(Math.floor(row), this.rows.count - 1)) : 0;
  }

  _hitFrom(line) {
    const place = this._hits.findIndex((hit) => hit >= line);
    return place < 0 ? this._hits.length - 1 : place;
  }

  _goToHit(place) {
    if (!this._hits.length) return;
    this._hit = (place + this._hits.length) % this._hits.length;
    this.current = this._hits[this._hit];
    this._setFollows(false);
    this._reveal(this.current);
    this._showHits();
  }

  _showHits() {
    const count = this.part("hits");
    const total = (this._total ?? 0).toLocaleString("en");
    if (!this.wanted) count.textContent = "";
    else if (this._hits.length) count.textContent = `${(this._hit + 1).toLocaleString("en")} of ${total} lines${this._isSearched ? "" : " …"}`;
    else count.textContent = this._isSearched ? "not found" : "searching …";
    for (const name of ["next", "previous"]) this.part(name).disabled = !this._hits.length;
  }

  // Controls

  _listen() {
    const { root, scroller } = this;
    let lastTop = 0;
    scroller.addEventListener("scroll", () => {
      const top = scroller.scrollTop;
      if (this._follows && top < lastTop - 2 && !this._view.atEnd) this._setFollows(false);
      else if (!this._follows && top > lastTop && this._view.atEnd && !FINAL.has(this._state)) this._setFollows(true);
      lastTop = top;
    }, { passive: true });
    scroller.addEventListener("wheel", (event) => event.deltaY < 0 && this._follows && this._setFollows(false), { passive: true });
    root.addEventListener("click", (event) => this._onClick(event));
    let timer = 0;
    const input = this.part("search");
    input.addEventListener("input", () => {
      clearTimeout(timer);
      timer = setTimeout(() => this._search(input.value), TYPING_MILLISECONDS);
    });
    input.addEventListener("keydown", (event) => {
      if (event.key === "Enter") {
        event.preventDefault();
        if (input.value.toLowerCase() !== this.wanted) this._search(input.value);
        else this._goToHit(this._hit + (event.shiftKey ? -1 : 1));
      } else if (event.key === "Escape") {
        input.value = "";
        this._search("");
      }
    });
    this.part("line").addEventListener("change", (event) => {
      const chosen = chosenIn(`#L${event.target.value.trim().replace(/^L/, "")}`);
      if (!chosen || chosen[0] >= this._count) showMessage(`The log has no such line; it has ${this._count}.`, { isProblem: true });
      else this._choose(...chosen, { scrolls: true });
    });
    addEventListener("hashchange", () => {
      this._chosen = chosenIn(location.hash);
      this._hasToShowChosen = Boolean(this._chosen);
      this._showHash();
      this._view.forget();
    });
    document.addEventListener("visibilitychange", () => this._send("show", { isShown: !document.hidden }));
    document.addEventListener("live:job", () => this._send("wake"));
    document.addEventListener("keydown", (event) => {
      if (event.key === "Escape" && root.classList.contains("full") && !root.querySelector("dialog[open]")) this._setFull(false);
    });
  }

  _setFull(isFull) {
    this.root.classList.toggle("full", isFull);
    document.body.classList.toggle("log-is-full", isFull);
    this.part("full").setAttribute("aria-pressed", String(isFull));
    this._view.draw();
  }

  _onClick(event) {
    const row = event.target.closest(".row");
    const toggle = event.target.closest(".toggle");
    const whole = event.target.closest("[data-whole]");
    const control = event.target.closest("button[data-log]");
    if (toggle) {
      this._toggle(Number(toggle.dataset.section));
    } else if (whole) {
      this._piece = { line: Number(whole.dataset.whole) };
      this._send("piece", { line: this._piece.line, part: 0 });
    } else if (event.target.classList.contains("number") && row && this.hasNumbers) {
      const line = Number(row.dataset.line) - 1;
      this._choose(event.shiftKey && this._chosen ? this._chosen[0] : line, line);
    } else if (control) {
      this._press(control);
    }
  }

  _toggle(first) {
    const section = this._first.get(first);
    this._toggled.set(first, !this.isCollapsed(section));
    this._setRows();
    this._view.forget();
    this._view.drawNow();
    this.scroller.querySelector(`[data-section="${first}"]`)?.focus({ preventScroll: true });
  }

  _press(control) {
    const press = (name, isOn) => this.part(name).setAttribute("aria-pressed", String(isOn));
    switch (control.dataset.log) {
      case "next": this._goToHit(this._hit + 1); break;
      case "previous": this._goToHit(this._hit - 1); break;
      case "times": press("times", this.showsTimes = !this.showsTimes); this._view.forget(); break;
      case "wrap": {
        press("wrap", this.wraps = !this.wraps);
        this.root.classList.toggle("wraps", this.wraps);
        this._view.forget();
        break;
      }
      case "full": this._setFull(!this.root.classList.contains("full")); break;
      case "top": this._setFollows(false); this.scroller.scrollTop = 0; break;
      case "end": this._view.scrollToEnd(); break;
      case "follow": this._setFollows(true); break;
      case "piece-back": this._send("piece", { line: this._piece.line, part: this._piece.part - 1 }); break;
      case "piece-on": this._send("piece", { line: this._piece.line, part: this._piece.part + 1 }); break;
      default:
    }
  }
}

function formatBytes(size) {
  if (size < 1024) return `${size} bytes`;
  for (const unit of ["KiB", "MiB", "GiB"]) {
    size /= 1024;
    if (size < 1024 || unit === "GiB") return `${size.toFixed(1)} ${unit}`;
  }
}

const root = document.getElementById("log");
if (root) new LogViewer(root);
