// A shell in a job, in the page: a terminal (terminal_screen.js) whose bytes pass through the cell as frames at exact
// offsets, so that after a broken connection none is lost or repeated.

import { describeError } from "./api.js";
import { Frames, encodeFrame, sizeFrame } from "./shell_frames.js";
import { paintStyle } from "./log_rows.js";
import { Screen } from "./terminal_screen.js";

const RETRY_MILLISECONDS = 1000;
const PATIENCE_MILLISECONDS = 60_000;
const MOST_INPUT_BYTES = 64 * 1024;
const MOST_PASTE = 1024 * 1024;
const KEYS = {
  ArrowUp: "A", ArrowDown: "B", ArrowRight: "C", ArrowLeft: "D", Home: "H", End: "F",
  Insert: "2~", Delete: "3~", PageUp: "5~", PageDown: "6~",
  F1: "P", F2: "Q", F3: "R", F4: "S", F5: "15~", F6: "17~", F7: "18~", F8: "19~", F9: "20~", F10: "21~", F11: "23~", F12: "24~",
};
const PLAIN_KEYS = { Enter: "\r", Backspace: "\x7f", Escape: "\x1b", Tab: "\t" };

/** What a key sends to the program; null if the browser should handle it (or it types text). */
export function keyText(event, hasApplicationKeys) {
  const { key, ctrlKey, altKey, shiftKey, metaKey } = event;
  if (metaKey) return null;
  const alt = altKey ? "\x1b" : "";
  if (key in PLAIN_KEYS) {
    if (key === "Tab" && shiftKey) return "\x1b[Z";
    return alt + PLAIN_KEYS[key];
  }
  if (key in KEYS) {
    const end = KEYS[key];
    const modifier = 1 + (shiftKey ? 1 : 0) + (altKey ? 2 : 0) + (ctrlKey ? 4 : 0);
    if (end.endsWith("~")) return modifier > 1 ? `\x1b[${end.slice(0, -1)};${modifier}~` : `\x1b[${end}`;
    if (modifier > 1) return `\x1b[1;${modifier}${end}`;
    return (hasApplicationKeys || "PQRS".includes(end) ? "\x1bO" : "\x1b[") + end;
  }
  if (ctrlKey && !altKey && key.length === 1) {
    // Copy and paste with Shift, as in other terminals.
    if (shiftKey && /^[cv]$/i.test(key)) return null;
    const code = key.toUpperCase().charCodeAt(0);
    if (code >= 0x40 && code <= 0x5f) return String.fromCharCode(code - 0x40);
    if (key === " ") return "\0";
    if (key === "?") return "\x7f";
    return null;
  }
  if (altKey && !ctrlKey && key.length === 1) return alt + key;
  return null;
}

class Stream {
  /** `path`: the address of the shells of the job. */
  constructor(path, onFrame, onNotice) {
    this._path = path;
    this._onFrame = onFrame;
    this._onNotice = onNotice;
    this._input = [];
    this._sent = 0;
    this._isSending = false;
    this._ended = false;
    this._stop = new AbortController();
  }

  async open(columns, rows) {
    const body = JSON.stringify({ columns, rows, terminal: true, term: "xterm-256color" });
    const answer = await this._call("POST", this._path, body, { "Content-Type": "application/json" });
    if (!answer.ok) throw new Error(await reasonOf(answer));
    const { id, connected } = await answer.json();
    this._path = `${this._path}/${encodeURIComponent(id)}`;
    return connected;
  }

  _call(method, path, body, headers = {}) {
    const token = document.querySelector("meta[name=csrf]").content;
    return fetch(path, { method, body, signal: this._stop.signal, headers: method === "GET" ? headers : { "X-CSRF-Token": token, ...headers } });
  }

  /** Repeat a call while the cell cannot be reached. */
  async _retry(act) {
    for (let since = 0; ;) {
      try {
        const answer = await act();
        if (answer.status < 500 && answer.status !== 429) {
          if (since) this._onNotice("");
          return answer;
        }
      } catch (error) {
        if (this._ended) throw error;
      }
      since ||= performance.now();
      if (performance.now() - since > PATIENCE_MILLISECONDS) throw new Error("The cell cannot be reached. The shell has ended.");
      this._onNotice("The connection is lost; trying again …");
      await pause(RETRY_MILLISECONDS);
    }
  }

  /** Pass on frames until the shell ends. Returns why it ended, or its exit code as a text. */
  async receive() {
    const frames = new Frames();
    let offset = 0;
    for (;;) {
      const answer = await this._retry(() => this._call("GET", `${this._path}/output?offset=${offset}`));
      if (!answer.ok) throw new Error(await reasonOf(answer));
      const bytes = new Uint8Array(await answer.arrayBuffer());
      offset += bytes.length;
      for (const { kind, data } of frames.feed(bytes)) {
        if (kind === "c") return `The shell has ended with exit code ${new DataView(data.buffer).getInt32(0)}.`;
        if (kind === "r") return `The shell has ended: ${new TextDecoder().decode(data)}`;
        this._onFrame(kind, data);
      }
      if (answer.headers.get("X-Remuda-Shell-State") === "over" && !bytes.length) {
        const state = await (await this._call("GET", this._path)).json();
        return `The shell has ended: ${state.reason}`;
      }
    }
  }

  send(bytes) {
    if (this._ended) return;
    this._input.push(bytes);
    this._sendAll();
  }

  async _sendAll() {
    if (this._isSending) return;
    this._isSending = true;
    try {
      while (this._input.length && !this._ended) {
        const piece = this._takeInput();
        const range = `${this._sent}-${this._sent + piece.length - 1}`;
        for (;;) {
          const headers = { "Content-Range": range, "Content-Type": "application/octet-stream" };
          const answer = await this._retry(() => this._call("PATCH", `${this._path}/input`, piece, headers));
          if (answer.ok) break;
          if (answer.status !== 416 || answer.headers.get("X-Remuda-Shell-State") === "over") return;
          await pause(RETRY_MILLISECONDS);
        }
        this._sent += piece.length;
      }
    } catch (error) {
      if (!this._ended) this._onNotice(error.message);
    } finally {
      this._isSending = false;
    }
  }

  _takeInput() {
    const pieces = [];
    let size = 0;
    while (this._input.length && (size === 0 || size + this._input[0].length <= MOST_INPUT_BYTES)) {
      size += this._input[0].length;
      pieces.push(this._input.shift());
    }
    const all = new Uint8Array(size);
    let at = 0;
    for (const piece of pieces) {
      all.set(piece, at);
      at += piece.length;
    }
    return all;
  }

  close() {
    if (this._ended) return;
    this._ended = true;
    this._stop.abort();
    const token = document.querySelector("meta[name=csrf]").content;
    fetch(this._path, { method: "DELETE", headers: { "X-CSRF-Token": token }, keepalive: true }).catch(() => {});
  }

  end() {
    this._ended = true;
  }
}

function pause(milliseconds) {
  return new Promise((resolve) => setTimeout(resolve, milliseconds));
}

async function reasonOf(answer) {
  return describeError(answer.status, await answer.json().catch(() => null));
}

class Terminal {
  constructor(root) {
    this.root = root;
    this.part = (name) => root.querySelector(`[data-shell="${name}"]`);
    this._keys = this.part("keys");
    this._view = this.part("screen");
    this._history = this.part("history");
    this._frame = 0;
    this._rows = [];
    this._shownHistory = [];
    this._encoder = new TextEncoder();
    this.part("open").addEventListener("click", () => this.open());
    this.part("close").addEventListener("click", () => this._finish("You have closed the shell."));
    this._listen();
  }

  async open() {
    this.part("open").disabled = true;
    this._history.replaceChildren();
    this._shownHistory = [];
    this._rows = [];
    this._view.replaceChildren();
    const { columns, rows } = this._measure();
    this._screen = new Screen(columns, rows, (text) => this._type(text));
    this._decoder = new TextDecoder();
    this._stream = new Stream(this.root.dataset.shells, (kind, data) => this._onFrame(kind, data), (text) => this._say(text));
    this._say("Opening the shell …");
    try {
      const isConnected = await this._stream.open(columns, rows);
      this._setState("open");
      this._keys.focus();
      this._say(isConnected ? "Waiting for the runner …" : "Waiting for the runner, which is not connected to the cell now …");
      this._draw();
      this._finish(await this._stream.receive());
    } catch (error) {
      if (this.root.dataset.state !== "ended") this._finish(error.message);
    }
  }

  _setState(state) {
    this.root.dataset.state = state;
    this.part("open").hidden = state === "open";
    this.part("open").disabled = false;
    this.part("close").hidden = state !== "open";
    if (state === "ended") this.part("open").textContent = "Open again";
  }

  _finish(text) {
    this._setState("ended");
    if (this._screen) {
      this._screen.isCursorShown = false;
      this._draw();
    }
    this._stream?.close();
    this._say(text);
    this.part("open").focus();
  }

  _say(text) {
    this.part("notice").textContent = text;
  }

  _onFrame(kind, data) {
    if (kind === "o") {
      this._say("");
      this._resize(true);
    } else if (kind === "d" || kind === "x") {
      this._screen.write(this._decoder.decode(data, { stream: true }));
      this._draw();
    }
  }

  _type(text) {
    if (!text || this.root.dataset.state !== "open") return;
    const bytes = this._encoder.encode(text);
    for (let at = 0; at < bytes.length; at += MOST_INPUT_BYTES - 5) {
      this._stream.send(encodeFrame("d", bytes.subarray(at, at + MOST_INPUT_BYTES - 5)));
    }
  }

  _measure() {
    const probe = this.part("probe");
    const { width, height } = probe.getBoundingClientRect();
    const box = this.part("box");
    const columns = Math.floor((box.clientWidth - 16) / (width / 10));
    const rows = Math.floor((box.clientHeight - 12) / height);
    return { columns: Math.min(Math.max(columns, 20), 400), rows: Math.min(Math.max(rows, 5), 200) };
  }

  _resize(isForced = false) {
    if (this.root.dataset.state !== "open") return;
    const { columns, rows } = this._measure();
    if (!isForced && columns === this._screen.columns && rows === this._screen.rows) return;
    this._screen.resize(columns, rows);
    this._stream.send(sizeFrame(columns, rows));
    this._draw();
  }

  _listen() {
    const keys = this._keys;
    keys.addEventListener("keydown", (event) => {
      if (event.isComposing) return;
      if (event.key === "Escape" && event.shiftKey) {
        event.preventDefault();
        this.part("close").focus();
        return;
      }
      const text = this._screen && keyText(event, this._screen.hasApplicationKeys);
      if (text === null || text === undefined) return;
      event.preventDefault();
      this._toEnd();
      this._type(text);
    });
    keys.addEventListener("input", (event) => {
      if (event.isComposing) return;
      this._toEnd();
      this._type(keys.value.replace(/\n/g, "\r"));
      keys.value = "";
    });
    keys.addEventListener("compositionend", () => {
      this._type(keys.value);
      keys.value = "";
    });
    keys.addEventListener("paste", (event) => {
      event.preventDefault();
      const text = event.clipboardData.getData("text").slice(0, MOST_PASTE).replace(/\r?\n/g, "\r");
      // What is pasted cannot end the brackets, which would make the rest count as typed.
      const inert = text.replaceAll("\x1b[201~", "");
      this._type(this._screen?.bracketsPaste ? `\x1b[200~${inert}\x1b[201~` : text);
    });
    this.part("box").addEventListener("click", () => {
      if (!String(getSelection())) keys.focus({ preventScroll: true });
    });
    for (const kind of ["focus", "blur"]) keys.addEventListener(kind, () => this.root.classList.toggle("has-focus", kind === "focus"));
    new ResizeObserver(() => {
      clearTimeout(this._resizing);
      this._resizing = setTimeout(() => this._resize(), 150);
    }).observe(this.part("box"));
    addEventListener("pagehide", () => this._stream?.close());
  }

  _toEnd() {
    const box = this.part("box");
    box.scrollTop = box.scrollHeight;
  }

  _draw() {
    this._frame ||= requestAnimationFrame(() => {
      this._frame = 0;
      this._drawNow();
    });
  }

  _drawNow() {
    const screen = this._screen;
    const box = this.part("box");
    const isAtEnd = box.scrollTop + box.clientHeight >= box.scrollHeight - 30;
    this._drawHistory(screen);
    for (const [number, line] of screen.lines.entries()) {
      const cursor = screen.isCursorShown && number === screen.row ? screen.column : -1;
      const key = keyOfLine(line, cursor);
      if (this._rows[number]?.key === key) continue;
      const node = lineNode(line, cursor);
      if (this._rows[number]) this._rows[number].node.replaceWith(node);
      else this._view.append(node);
      this._rows[number] = { key, node };
    }
    for (const { node } of this._rows.splice(screen.lines.length)) node.remove();
    if (screen.title) this.part("title").textContent = screen.title;
    if (isAtEnd) this._toEnd();
  }

  _drawHistory(screen) {
    const shown = this._shownHistory;
    const lines = screen.isAlternate ? [] : screen.history;
    // Lines are added at the end and removed at the beginning.
    let gone = 0;
    while (gone < shown.length && shown[gone] !== lines[0]) gone++;
    for (let count = 0; count < gone; count++) this._history.firstChild.remove();
    shown.splice(0, gone);
    for (const line of lines.slice(shown.length)) {
      this._history.append(lineNode(line, -1));
      shown.push(line);
    }
  }
}

const styleKeys = new WeakMap();
let styleCount = 0;

function keyOfLine(line, cursor) {
  let key = `${cursor}|`;
  let last = null;
  for (const { text, style } of line) {
    if (style !== last) {
      if (!styleKeys.has(style)) styleKeys.set(style, ++styleCount);
      key += `\x00${styleKeys.get(style)}\x00`;
      last = style;
    }
    key += text;
  }
  return key;
}

function lineNode(line, cursor) {
  const node = document.createElement("div");
  node.className = "term-line";
  for (let at = 0; at < line.length;) {
    const { style } = line[at];
    let end = at + 1;
    while (end < line.length && line[end].style === style && end !== cursor && at !== cursor) end++;
    const text = line.slice(at, end).map((cell) => cell.text).join("");
    const box = document.createElement("span");
    box.textContent = text;
    const isPlain = paintStyle(box, style);
    if (at === cursor) box.classList.add("cursor");
    if (isPlain && at !== cursor) node.append(text);
    else node.append(box);
    at = end;
  }
  return node;
}

const root = document.getElementById("shell");
if (root) new Terminal(root);
