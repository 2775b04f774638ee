// The index of a log: where each shown line begins, the style there, and the sections. Pure; it is fed with the bytes of
// the log in order and keeps none of them, only 8 bytes for each line.

import { HEADER_BYTES, PLAIN, headerOf, styleAfter, takeMarkers } from "./log_text.js";

const PLUS = 0x2b, NEWLINE = 10, RETURN = 13, ESCAPE = 0x1b;
/** How much of the beginning of a long stored line is searched for markers and colours. */
const HEAD_BYTES = 8192;
const MOST_SECTIONS = 5000;
const MOST_STYLES = 100_000;
const MOST_DEPTH = 50;
const latin = new TextDecoder("latin1");

export class LogIndex {
  constructor() {
    this.size = 0;
    this.count = 0;
    /** {name, first, end, began, ended, isCollapsed, depth}: lines [first, end); `end` is -1 while it is open. */
    this.sections = [];
    this.sectionsVersion = 0;
    this._starts = new Float64Array(1024);
    this._stack = [];
    this._style = PLAIN;
    this._styleLines = [];
    this._styles = [];
    this._stream = -1;
    this._isAfterMarker = false;
    this._pendingStart = 0;
    this._pending = new Uint8Array(HEAD_BYTES);
    this._pendingLength = 0;
  }

  /** Whether the last stored line has no end yet and is shown as a line of its own. */
  get hasOpenLine() {
    if (this._pendingStart >= this.size) return false;
    return this.count === 0 || headerOf(this._pending, 0, this._pendingLength) !== PLUS;
  }

  /** The number of shown lines. */
  get lines() {
    return this.count + (this.hasOpenLine ? 1 : 0);
  }

  startOf(line) {
    return line < this.count ? this._starts[line] : line === this.count && this.hasOpenLine ? this._pendingStart : this.size;
  }

  /** The shown line that contains the byte at an offset. */
  lineOf(offset) {
    let low = 0, high = this.lines;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (this.startOf(middle) <= offset) low = middle + 1;
      else high = middle;
    }
    return Math.max(low - 1, 0);
  }

  /** The style at the beginning of a line. */
  styleOf(line) {
    let low = 0, high = this._styleLines.length;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (this._styleLines[middle] <= line) low = middle + 1;
      else high = middle;
    }
    return low ? this._styles[low - 1] : PLAIN;
  }

  /** Add the next bytes of the log. */
  feed(bytes) {
    let at = 0;
    if (this.size > this._pendingStart) {
      const end = bytes.indexOf(NEWLINE);
      const upTo = end < 0 ? bytes.length : end;
      const room = Math.min(HEAD_BYTES - this._pendingLength, upTo);
      this._pending.set(bytes.subarray(0, room), this._pendingLength);
      this._pendingLength += room;
      if (end >= 0) {
        this._add(this._pending, 0, this._pendingLength, this._pendingStart);
        at = end + 1;
      } else {
        at = bytes.length;
      }
    }
    const base = this.size;
    let escape = -1, carriage = -1;
    while (at < bytes.length) {
      const end = bytes.indexOf(NEWLINE, at);
      if (end < 0) {
        this._pendingStart = base + at;
        this._pendingLength = Math.min(bytes.length - at, HEAD_BYTES);
        this._pending.set(bytes.subarray(at, at + this._pendingLength));
        this.size = base + bytes.length;
        return;
      }
      // Most lines have neither: the next of both is searched once, not for each line.
      if (escape < at) escape = next(bytes, ESCAPE, at);
      if (carriage < at) carriage = next(bytes, RETURN, at);
      if (escape < end || carriage < end) this._add(bytes, at, end, base + at);
      else this._addPlain(bytes, at, end, base + at);
      at = end + 1;
    }
    this.size = base + bytes.length;
    if (bytes[bytes.length - 1] === NEWLINE) {
      this._pendingStart = this.size;
      this._pendingLength = 0;
    }
  }

  _addPlain(bytes, at, end, start) {
    const header = headerOf(bytes, at, end);
    if (!this._continues(bytes, at, header)) this._push(start);
    this._isAfterMarker = false;
  }

  _continues(bytes, at, header) {
    const stream = header ? bytes[at + 28] * 256 + bytes[at + 29] : -1;
    const continues = header === PLUS && stream === this._stream && this.count > 0 && !this._isAfterMarker;
    this._stream = stream;
    return continues;
  }

  _add(bytes, at, end, start) {
    const header = headerOf(bytes, at, end);
    const continues = this._continues(bytes, at, header);
    const upTo = Math.min(end, at + HEAD_BYTES);
    const body = latin.decode(bytes.subarray(header ? at + HEADER_BYTES : at, upTo));
    const { markers, text } = takeMarkers(body);
    // A line with nothing but ends of sections is not shown.
    const isShown = text !== "" || !markers.length || markers.some((marker) => marker.isStart);
    this._isAfterMarker = !isShown;
    const line = continues ? this.count - 1 : this.count;
    for (const marker of markers) {
      if (marker.isStart) this._open(marker, line);
      else this._close(marker, line);
    }
    if (isShown && !continues) this._push(start);
    if (text.includes("\x1b")) this._style = styleAfter(text, this._style);
  }

  _push(start) {
    if (this.count === this._starts.length) {
      const larger = new Float64Array(this._starts.length * 2);
      larger.set(this._starts);
      this._starts = larger;
    }
    this._starts[this.count] = start;
    const known = this._styles.at(-1) ?? PLAIN;
    if (this._style !== known && this._styles.length < MOST_STYLES) {
      this._styleLines.push(this.count);
      this._styles.push(this._style);
    } else if (this._styles.length >= MOST_STYLES && known !== PLAIN) {
      this._styleLines.push(this.count);
      this._styles.push(PLAIN);
    }
    this.count++;
  }

  _open({ name, time, isCollapsed }, line) {
    if (this.sections.length >= MOST_SECTIONS || this._stack.length >= MOST_DEPTH) return;
    const section = { name, first: line, end: -1, began: time, ended: 0, isCollapsed, depth: this._stack.length };
    this.sections.push(section);
    this._stack.push(section);
    this.sectionsVersion++;
  }

  _close({ name, time }, line) {
    const place = this._stack.findLastIndex((section) => section.name === name);
    if (place < 0) return;
    for (const section of this._stack.splice(place)) {
      section.end = Math.max(line, section.first + 1);
      section.ended = time;
    }
    this.sectionsVersion++;
  }
}

function next(bytes, sign, from) {
  const place = bytes.indexOf(sign, from);
  return place < 0 ? Infinity : place;
}

/** Which lines are shown as rows: all but those that collapsed sections hide. */
export class Rows {
  /** `hidden`: ranges [first, end) of lines, sorted, without overlaps. */
  constructor(lines, hidden = []) {
    this.lines = lines;
    this._hidden = hidden;
    this._before = [];
    let sum = 0;
    for (const [first, end] of hidden) {
      this._before.push(sum);
      sum += end - first;
    }
    this.count = lines - sum;
  }

  lineAt(row) {
    let low = 0, high = this._hidden.length;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (this._hidden[middle][0] - this._before[middle] <= row) low = middle + 1;
      else high = middle;
    }
    if (!low) return row;
    const [first, end] = this._hidden[low - 1];
    return row + this._before[low - 1] + (end - first);
  }

  /** The row of a line, or of the line above which hides it. */
  rowOf(line) {
    let low = 0, high = this._hidden.length;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (this._hidden[middle][0] <= line) low = middle + 1;
      else high = middle;
    }
    if (!low) return line;
    const [first, end] = this._hidden[low - 1];
    if (line < end) return Math.max(first - this._before[low - 1] - 1, 0);
    return line - this._before[low - 1] - (end - first);
  }
}

/** The lines that collapsed sections hide: all of a section but its first line. */
export function hiddenRanges(sections, isCollapsed, lines) {
  const ranges = [];
  for (const section of sections) {
    if (!isCollapsed(section)) continue;
    const first = section.first + 1;
    const end = Math.min(section.end < 0 ? lines : section.end, lines);
    const last = ranges.at(-1);
    if (last && first < last[1]) last[1] = Math.max(last[1], end);
    else if (end > first) ranges.push([first, end]);
  }
  return ranges;
}
