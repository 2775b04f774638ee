// A worker: reads the log of one job in byte ranges, keeps its index and the last used parts of its bytes, searches it,
// and follows it while the job runs. The page gets only the lines that it shows.
//
// Messages to it: open, lines, search, piece, show (whether the page is seen), follow (how many last lines to send
// along). Messages from it: state, preview, lines, hits, piece, problem.

import { LogIndex } from "./log_index.js";
import { plainText, parseLine, readStored } from "./log_text.js";

const CHUNK_BYTES = 1 << 20;
const KEPT_CHUNKS = 24;
const PREVIEW_BYTES = 128 * 1024;
const PREVIEW_FROM_BYTES = 2 << 20;
const PREVIEW_LINES = 120;
const BEGINNING_LINES = 120;
/** Of a longer line, only the first bytes are read to show it, and the last if it overwrites itself. */
const LINE_BYTES = 64 * 1024;
const PIECE_BYTES = 64 * 1024;
const SEARCH_BYTES = 1 << 20;
const LONGEST_SEARCHED_BYTES = 64 << 20;
const MOST_HITS = 100_000;
const STATE_MILLISECONDS = 80;
const PAUSE_MILLISECONDS = 150;
const RETRY_MILLISECONDS = 2000;
const HOLD_SECONDS = 45;
const FINAL = new Set(["success", "failed", "canceled", "skipped"]);
const IS_ASCII = /^[\x20-\x7e]*$/;
const decoder = new TextDecoder();
const latin = new TextDecoder("latin1");

let traceUrl, followUrl;
let index = new LogIndex();
let chunks = new Map();
let loading = new Map();
let tail = new Uint8Array(CHUNK_BYTES);
let tailStart = 0;
let epoch = 0;
let jobState = "";
let isIndexed = false;
let isShown = true;
let tailLines = 0;
let sentVersion = -1;
let stateTimer = 0;
let wakeUp = () => {};
let following = null;
let searching = null;

function sendState() {
  clearTimeout(stateTimer);
  stateTimer = 0;
  const message = { kind: "state", epoch, size: index.size, lines: index.lines, isIndexed, jobState };
  if (index.sectionsVersion !== sentVersion) {
    message.sections = index.sections;
    sentVersion = index.sectionsVersion;
  }
  if (isIndexed && tailLines) {
    const from = Math.max(index.lines - tailLines, 0);
    const tailBytes = bytesHere(index.startOf(from), index.size);
    if (tailBytes) message.tail = { from, lines: parseLines(from, index.lines - from, tailBytes) };
  }
  postMessage(message);
  if (searching) searchOn();
}

/** Send the first lines at once, so that the page need not ask for them while this worker reads the rest. */
function sendBeginning() {
  sendState();
  const count = Math.min(index.lines, BEGINNING_LINES);
  const bytes = bytesHere(0, index.startOf(count));
  if (bytes) postMessage({ kind: "lines", id: -1, epoch, from: 0, lines: parseLines(0, count, bytes) });
}

function sendStateSoon() {
  stateTimer ||= setTimeout(sendState, STATE_MILLISECONDS);
}

// Bytes

function append(bytes) {
  index.feed(bytes);
  let at = 0;
  while (at < bytes.length) {
    const place = index.size - bytes.length + at - tailStart;
    const room = Math.min(CHUNK_BYTES - place, bytes.length - at);
    tail.set(bytes.subarray(at, at + room), place);
    at += room;
    if (place + room === CHUNK_BYTES) {
      keep(tailStart / CHUNK_BYTES, tail);
      tail = new Uint8Array(CHUNK_BYTES);
      tailStart += CHUNK_BYTES;
    }
  }
}

function keep(number, bytes) {
  chunks.delete(number);
  chunks.set(number, bytes);
  if (chunks.size > KEPT_CHUNKS) chunks.delete(chunks.keys().next().value);
}

function chunkHere(number) {
  if (number * CHUNK_BYTES === tailStart) return tail;
  const chunk = chunks.get(number);
  if (chunk) keep(number, chunk);
  return chunk;
}

async function load(number) {
  const here = chunkHere(number);
  if (here) return here;
  if (!loading.has(number)) {
    const fetched = fetchRange(number * CHUNK_BYTES, (number + 1) * CHUNK_BYTES).finally(() => loading.delete(number));
    loading.set(number, fetched);
  }
  const bytes = await loading.get(number);
  keep(number, bytes);
  return bytes;
}

async function fetchRange(from, end) {
  const response = await fetch(traceUrl, { headers: { Range: `bytes=${from}-${end - 1}` } });
  if (!response.ok) throw new Error(`The log cannot be read (${response.status}).`);
  return new Uint8Array(await response.arrayBuffer());
}

/** The bytes of a range if they are in memory, else null. */
function bytesHere(from, end) {
  if (end - from > 4 * CHUNK_BYTES) return null;
  const parts = [];
  for (let number = Math.floor(from / CHUNK_BYTES); number * CHUNK_BYTES < end; number++) {
    const chunk = chunkHere(number);
    if (!chunk) return null;
    parts.push(chunk);
  }
  return join(parts, from, end);
}

async function bytesOf(from, end) {
  const parts = [];
  for (let number = Math.floor(from / CHUNK_BYTES); number * CHUNK_BYTES < end; number++) parts.push(await load(number));
  return join(parts, from, end);
}

function join(parts, from, end) {
  const first = Math.floor(from / CHUNK_BYTES) * CHUNK_BYTES;
  if (parts.length === 1) return parts[0].subarray(from - first, end - first);
  const bytes = new Uint8Array(end - from);
  let place = 0;
  for (const [number, part] of parts.entries()) {
    const start = first + number * CHUNK_BYTES;
    const piece = part.subarray(Math.max(from - start, 0), Math.min(end - start, CHUNK_BYTES));
    bytes.set(piece, place);
    place += piece.length;
  }
  return bytes;
}

// Lines

function parseStored(bytes, style, number, length) {
  const { time, isError, text, markers } = readStored(bytes);
  const { segments, isCut } = parseLine(text, style);
  const section = markers.find((marker) => marker.isStart);
  return { number, time, isError, segments, section: section?.name ?? "", cutBytes: isCut || length > bytes.length ? length : 0 };
}

/** Parse lines whose bytes begin with those of the line `from`. */
function parseLines(from, count, bytes) {
  const lines = [];
  const base = index.startOf(from);
  for (let line = from; line < from + count; line++) {
    const start = index.startOf(line) - base, end = index.startOf(line + 1) - base;
    lines.push(parseStored(shortened(bytes.subarray(start, end)), index.styleOf(line), line, end - start));
  }
  return lines;
}

/** The part of a very long line that decides what it shows. */
function shortened(bytes) {
  if (bytes.length <= 2 * LINE_BYTES) return bytes;
  const head = bytes.subarray(0, LINE_BYTES);
  if (!head.includes(13)) return head;
  const both = new Uint8Array(2 * LINE_BYTES);
  both.set(head);
  both.set(bytes.subarray(bytes.length - LINE_BYTES), LINE_BYTES);
  return both;
}

async function sendLines({ id, from, count }) {
  const now = epoch;
  const lines = [];
  const end = Math.min(from + count, index.lines);
  for (let line = from; line < end;) {
    // As many lines as fit, so that a few huge ones need no memory at once.
    let upTo = line + 1;
    while (upTo < end && index.startOf(upTo + 1) - index.startOf(line) <= SEARCH_BYTES) upTo++;
    const start = index.startOf(line), size = index.startOf(upTo) - start;
    if (upTo === line + 1 && size > SEARCH_BYTES) lines.push(await readHuge(line, start, size));
    else lines.push(...parseLines(line, upTo - line, await bytesOf(start, start + size)));
    if (now !== epoch) return;
    line = upTo;
  }
  postMessage({ kind: "lines", id, epoch: now, from, lines });
}

async function readHuge(line, start, size) {
  const head = await bytesOf(start, start + LINE_BYTES);
  let bytes = head;
  if (head.includes(13)) {
    const last = await bytesOf(start + size - LINE_BYTES, start + size);
    bytes = new Uint8Array(head.length + last.length);
    bytes.set(head);
    bytes.set(last, head.length);
  }
  return parseStored(bytes, index.styleOf(line), line, size);
}

async function sendPiece({ id, line, part }) {
  const start = index.startOf(line), size = index.startOf(line + 1) - start;
  const from = part * PIECE_BYTES;
  const bytes = await bytesOf(start + from, start + Math.min(from + PIECE_BYTES, size));
  const text = decoder.decode(bytes).replace(/[\x00-\x08\x0b-\x1f\x7f-\x9f]/g, "\ufffd");
  postMessage({ kind: "piece", id, part, parts: Math.ceil(size / PIECE_BYTES), size, text });
}

// Search

function search({ id, text }) {
  searching = { id, wanted: text.toLowerCase(), line: 0, total: 0, isRunning: false };
  return searchOn();
}

/** Search the lines that the present search has not seen yet; called again when the log has grown. */
async function searchOn() {
  const now = searching;
  if (!now || now.isRunning) return;
  now.isRunning = true;
  const epochNow = epoch;
  let hits = [];
  let sentAt = performance.now();
  const send = (isDone) => {
    postMessage({ kind: "hits", id: now.id, hits: Float64Array.from(hits), total: now.total, isDone });
    hits = [];
    sentAt = performance.now();
  };
  try {
    // A line that has no end yet is searched when it has one, or the job has ended.
    const end = () => (FINAL.has(jobState) ? index.lines : index.count);
    while (now.line < end()) {
      const start = index.startOf(now.line);
      let upTo = now.line + 1;
      while (upTo < end() && index.startOf(upTo + 1) - start <= SEARCH_BYTES) upTo++;
      const size = Math.min(index.startOf(upTo) - start, LONGEST_SEARCHED_BYTES);
      const bytes = await bytesOf(start, start + size);
      if (now !== searching || epochNow !== epoch) return;
      for (const found of matches(bytes, start, now.line, upTo, now.wanted)) {
        now.total++;
        if (now.total <= MOST_HITS) hits.push(found);
      }
      now.line = upTo;
      if (performance.now() - sentAt > 150) send(false);
      // Requests for lines come in between.
      await new Promise((resolve) => setTimeout(resolve));
      if (now !== searching || epochNow !== epoch) return;
    }
    send(isIndexed);
  } finally {
    now.isRunning = false;
  }
}

function* matches(bytes, start, from, end, wanted) {
  const isMatch = (line) => {
    const stored = bytes.subarray(index.startOf(line) - start, index.startOf(line + 1) - start);
    return plainText(readStored(stored).text).toLowerCase().includes(wanted);
  };
  if (!IS_ASCII.test(wanted)) {
    for (let line = from; line < end; line++) if (isMatch(line)) yield line;
    return;
  }
  // One character for each byte, so that places are offsets. Only lines with the text itself, and those in which control
  // sequences or joints of lines could divide it, are looked at.
  const text = latin.decode(bytes).toLowerCase();
  const places = [wanted, "\x1b", "\r", "\b", "o+", "e+"].map((sign) => ({ sign, at: -1 }));
  for (let at = 0; at < text.length;) {
    let first = Infinity;
    for (const place of places) {
      if (place.at < at) {
        place.at = text.indexOf(place.sign, at);
        if (place.at < 0) place.at = Infinity;
      }
      first = Math.min(first, place.at);
    }
    if (first === Infinity) return;
    const line = index.lineOf(start + first);
    if (line >= end) return;
    if (isMatch(line)) yield line;
    at = index.startOf(line + 1) - start;
  }
}

// Reading and following

function begin() {
  epoch++;
  index = new LogIndex();
  chunks = new Map();
  loading = new Map();
  tail = new Uint8Array(CHUNK_BYTES);
  tailStart = 0;
  isIndexed = false;
  sentVersion = -1;
  searching = null;
}

async function readOnce(wantsEnd) {
  const now = epoch;
  const hold = isIndexed ? `&hold_seconds=${HOLD_SECONDS}` : "";
  following = new AbortController();
  const response = await fetch(`${followUrl}?offset=${index.size}${hold}`, { signal: following.signal });
  if (!response.ok) throw Object.assign(new Error(await reasonOf(response)), { status: response.status });
  const size = Number(response.headers.get("X-Remuda-Trace-Size"));
  const state = response.headers.get("X-Remuda-Job-State");
  if (size < index.size) {
    // Erased, or the job began again.
    begin();
    sendState();
    return false;
  }
  // Before the bulk of the log, which the response sends only as fast as it is read.
  if (wantsEnd && !isIndexed && size - index.size > PREVIEW_FROM_BYTES) await sendPreview(now);
  const reader = response.body?.getReader();
  for (let part; reader && !(part = await reader.read()).done;) {
    const isFirst = index.size === 0;
    append(part.value);
    if (isFirst && !wantsEnd) sendBeginning();
    else sendStateSoon();
  }
  isIndexed = true;
  jobState = state;
  sendState();
  return FINAL.has(state) && index.size >= size;
}

async function reasonOf(response) {
  try {
    const body = await response.json();
    return String(body.message ?? body.error);
  } catch {
    return `The cell answered ${response.status}.`;
  }
}

async function sendPreview(now) {
  try {
    const response = await fetch(traceUrl, { headers: { Range: `bytes=-${PREVIEW_BYTES}` } });
    if (response.status !== 206) return;
    const bytes = new Uint8Array(await response.arrayBuffer());
    const from = bytes.indexOf(10) + 1;
    const end = new LogIndex();
    end.feed(bytes.subarray(from));
    const lines = [];
    for (let line = Math.max(end.lines - PREVIEW_LINES, 0); line < end.lines; line++) {
      const stored = bytes.subarray(from + end.startOf(line), from + end.startOf(line + 1));
      lines.push(parseStored(shortened(stored), end.styleOf(line), line, stored.length));
    }
    if (now === epoch && !isIndexed) postMessage({ kind: "preview", lines });
  } catch {
    // The whole log is read anyway.
  }
}

async function readOn({ wantsEnd }) {
  for (let isOver = false; ;) {
    try {
      isOver = await readOnce(wantsEnd);
      postMessage({ kind: "problem", text: "" });
      if (!isOver) await pause(PAUSE_MILLISECONDS);
    } catch (error) {
      if (error.name !== "AbortError") {
        postMessage({ kind: "problem", text: error.message });
        if (error.status && error.status < 500 && error.status !== 429) isOver = true;
        else await pause(RETRY_MILLISECONDS);
      }
    }
    // A hidden page holds no connection: browsers open only six to a host.
    while (isOver || !isShown) {
      await new Promise((resolve) => { wakeUp = resolve; });
      isOver = false;
    }
  }
}

function pause(milliseconds) {
  return new Promise((resolve) => setTimeout(resolve, milliseconds));
}

const TASKS = {
  open(message) {
    ({ traceUrl, followUrl } = message);
    begin();
    readOn(message);
  },
  lines: sendLines,
  piece: sendPiece,
  search,
  stop() {
    searching = null;
  },
  show({ isShown: now }) {
    isShown = now;
    if (isShown) wakeUp();
    else if (isIndexed) following?.abort();
  },
  /** The job changed: it may run again. */
  wake() {
    if (isShown) wakeUp();
  },
  follow({ count }) {
    tailLines = count;
  },
};

onmessage = async ({ data }) => {
  try {
    await TASKS[data.kind](data);
  } catch (error) {
    postMessage({ kind: "problem", text: error.message });
  }
};
