// The screen of a terminal: reads what a program prints (a subset of xterm that shells, editors and pagers use) and keeps
// a grid of cells. Pure. Unknown sequences are ignored; every call is linear in the length of its input.

import { PLAIN, applyStyle, readSequence } from "./log_text.js";

const BLANK = Object.freeze({ text: " ", style: PLAIN });
const MOST_HISTORY = 2000;
const LONGEST_SEQUENCE = 4096;
const TAB = 8;
const MOST_SIDE = 500;
// Characters of the DEC graphics set, with which programs draw lines.
const LINES = { j: "┘", k: "┐", l: "┌", m: "└", n: "┼", q: "─", t: "├", u: "┤", v: "┴", w: "┬", x: "│", a: "▒", "`": "◆", f: "°", g: "±", "~": "·", o: "⎺", s: "⎽", "0": "█" };

export class Screen {
  /** `reply(text)`: called with what the terminal answers, such as the place of the cursor. */
  constructor(columns, rows, reply = () => {}) {
    this.columns = columns;
    this.rows = rows;
    this.history = [];
    this.title = "";
    this.bells = 0;
    this._reply = reply;
    this._rest = "";
    this._reset();
  }

  _reset() {
    this.row = this.column = 0;
    this.isCursorShown = true;
    this.hasApplicationKeys = false;
    this.bracketsPaste = false;
    this._style = PLAIN;
    this._wraps = true;
    this._isPastEnd = false;
    this._inserts = false;
    this._isOrigin = false;
    this._drawsLines = [false, false];
    this._charset = 0;
    this._last = " ";
    this._saved = null;
    this._main = null;
    this.lines = this._emptyLines(this.rows);
    this._setRegion(0, this.rows - 1);
  }

  get isAlternate() {
    return this._main !== null;
  }

  _emptyLine() {
    return Array(this.columns).fill(BLANK);
  }

  _emptyLines(count) {
    return Array.from({ length: count }, () => this._emptyLine());
  }

  _setRegion(top, bottom) {
    this._top = top;
    this._bottom = bottom;
  }

  /** Change the size of the screen. Lines that do not fit go to the history. */
  resize(columns, rows) {
    columns = Math.min(Math.max(columns, 2), MOST_SIDE);
    rows = Math.min(Math.max(rows, 2), MOST_SIDE);
    const fit = (lines, row) => {
      let above = Math.max(Math.min(row - rows + 1, lines.length - rows), 0);
      const kept = lines.slice(above, above + rows);
      for (const line of kept) {
        line.length = Math.min(line.length, columns);
        while (line.length < columns) line.push(BLANK);
      }
      while (kept.length < rows) kept.push(Array(columns).fill(BLANK));
      return { kept, gone: lines.slice(0, above) };
    };
    if (this._main) this._main.lines = fit(this._main.lines, this._main.row).kept;
    const { kept, gone } = fit(this.lines, this.row);
    if (!this._main) for (const line of gone) this._remember(line);
    this.lines = kept;
    this.row = Math.min(this.row - gone.length, rows - 1);
    this.column = Math.min(this.column, columns - 1);
    this.columns = columns;
    this.rows = rows;
    this._isPastEnd = false;
    this._setRegion(0, rows - 1);
  }

  /** Process output of the program. */
  write(text) {
    text = this._rest + text;
    this._rest = "";
    for (let at = 0; at < text.length;) {
      const code = text.charCodeAt(at);
      if (code === 0x1b) {
        const end = this._sequence(text, at);
        if (end < 0) {
          this._rest = text.slice(at, at + LONGEST_SEQUENCE);
          return;
        }
        at = end;
      } else if (code < 0x20 || code === 0x7f) {
        this._control(code);
        at++;
      } else {
        const size = code >= 0xd800 && code < 0xdc00 && at + 1 < text.length ? 2 : 1;
        if (code < 0x80 || code >= 0xa0) this._print(text.slice(at, at + size));
        at += size;
      }
    }
  }

  _control(code) {
    switch (code) {
      case 7: this.bells++; break;
      case 8:
        this.column = Math.max(this.column - 1, 0);
        this._isPastEnd = false;
        break;
      case 9: this._moveTo(this.row, Math.min((Math.floor(this.column / TAB) + 1) * TAB, this.columns - 1)); break;
      case 10: case 11: case 12: this._lineFeed(); break;
      case 13:
        this.column = 0;
        this._isPastEnd = false;
        break;
      case 14: this._charset = 1; break;
      case 15: this._charset = 0; break;
      default:
    }
  }

  _print(sign) {
    if (this._drawsLines[this._charset]) sign = LINES[sign] ?? sign;
    const width = widthOf(sign);
    if (width === 0) {
      const column = Math.max(this._isPastEnd ? this.column : this.column - 1, 0);
      const cell = this.lines[this.row][column];
      // A few marks on a character, not thousands.
      if (cell.text.length < 8) this.lines[this.row][column] = { text: cell.text + sign, style: cell.style };
      return;
    }
    if (this._isPastEnd || (width === 2 && this.column === this.columns - 1)) {
      if (this._wraps) {
        this.column = 0;
        this._lineFeed();
      }
      this._isPastEnd = false;
    }
    const line = this.lines[this.row];
    if (this._inserts) {
      for (let count = 0; count < width; count++) line.splice(this.column, 0, BLANK);
      line.length = this.columns;
    }
    this._last = sign;
    line[this.column] = { text: sign, style: this._style };
    if (width === 2 && this.column + 1 < this.columns) line[this.column + 1] = { text: "", style: this._style };
    this.column += width;
    if (this.column >= this.columns) {
      this.column = this.columns - 1;
      this._isPastEnd = true;
    }
  }

  _remember(line) {
    this.history.push(line);
    if (this.history.length > MOST_HISTORY) this.history.shift();
  }

  _lineFeed() {
    this._isPastEnd = false;
    if (this.row === this._bottom) this._scrollUp(1);
    else if (this.row < this.rows - 1) this.row++;
  }

  _blank() {
    return this._style.bg === null ? BLANK : { text: " ", style: { fg: null, bg: this._style.bg, flags: 0 } };
  }

  _blankLine() {
    return Array(this.columns).fill(this._blank());
  }

  _scrollUp(count, top = this._top) {
    for (let left = Math.min(count, this._bottom - top + 1); left > 0; left--) {
      const [gone] = this.lines.splice(top, 1);
      if (top === 0 && !this._main) this._remember(gone);
      this.lines.splice(this._bottom, 0, this._blankLine());
    }
  }

  _scrollDown(count, top = this._top) {
    for (let left = Math.min(count, this._bottom - top + 1); left > 0; left--) {
      this.lines.splice(this._bottom, 1);
      this.lines.splice(top, 0, this._blankLine());
    }
  }

  _moveTo(row, column) {
    this.row = Math.min(Math.max(row, 0), this.rows - 1);
    this.column = Math.min(Math.max(column, 0), this.columns - 1);
    this._isPastEnd = false;
  }

  /** Process the sequence at `at`. Returns where it ends; -1 if the rest of it is still to come. */
  _sequence(text, at) {
    const { kind, body, end } = readSequence(text, at);
    const isOpen = end >= text.length && !isComplete(text, at, end);
    if (isOpen && text.length - at < LONGEST_SEQUENCE) return -1;
    if (kind === "]") {
      if (/^[012];/.test(body)) this.title = body.slice(2, 200).replace(/[\x00-\x1f\x7f-\x9f]/g, "");
    } else if (kind) {
      this._csi(kind, body);
    } else if (text[at + 1] !== "[") {
      this._escape(text.slice(at + 1, end));
    }
    return Math.max(end, at + 1);
  }

  _escape(body) {
    switch (body) {
      case "7": this._save(); break;
      case "8": this._restore(); break;
      case "D": this._lineFeed(); break;
      case "E":
        this.column = 0;
        this._lineFeed();
        break;
      case "M":
        if (this.row === this._top) this._scrollDown(1);
        else this._moveTo(this.row - 1, this.column);
        break;
      case "c": this._reset(); break;
      case "(0": this._drawsLines[0] = true; break;
      case "(B": this._drawsLines[0] = false; break;
      case ")0": this._drawsLines[1] = true; break;
      case ")B": this._drawsLines[1] = false; break;
      default:
    }
  }

  _save() {
    this._saved = { row: this.row, column: this.column, style: this._style, lines: [...this._drawsLines], charset: this._charset };
  }

  _restore() {
    const saved = this._saved;
    if (!saved) {
      this._moveTo(0, 0);
      return;
    }
    this._moveTo(saved.row, saved.column);
    this._style = saved.style;
    this._drawsLines = [...saved.lines];
    this._charset = saved.charset;
  }

  _csi(kind, body) {
    if (/^[?]/.test(body)) {
      if (kind === "h" || kind === "l") for (const mode of body.slice(1).split(";", 16)) this._setMode(Number(mode), kind === "h");
      return;
    }
    if (/[<=>!"'$ *]/.test(body)) {
      if (body === "!" && kind === "p") this._reset();
      if (body.startsWith(">") && kind === "c") this._reply("\x1b[>0;10;0c");
      return;
    }
    const numbers = body.split(";", 16).map((part) => Math.min(Number.parseInt(part, 10) || 0, 9999));
    const count = Math.max(numbers[0], 1);
    const top = this._isOrigin ? this._top : 0;
    switch (kind) {
      case "A": this._moveTo(Math.max(this.row - count, this.row >= this._top ? this._top : 0), this.column); break;
      case "B": case "e": this._moveTo(Math.min(this.row + count, this.row <= this._bottom ? this._bottom : this.rows - 1), this.column); break;
      case "C": case "a": this._moveTo(this.row, this.column + count); break;
      case "D": this._moveTo(this.row, this.column - count); break;
      case "E": this._moveTo(this.row + count, 0); break;
      case "F": this._moveTo(this.row - count, 0); break;
      case "G": case "`": this._moveTo(this.row, count - 1); break;
      case "d": this._moveTo(top + count - 1, this.column); break;
      case "H": case "f": this._moveTo(top + count - 1, Math.max(numbers[1] ?? 1, 1) - 1); break;
      case "J": this._eraseScreen(numbers[0]); break;
      case "K": this._eraseLine(numbers[0]); break;
      case "L": if (this.row >= this._top && this.row <= this._bottom) this._scrollDown(count, this.row); break;
      case "M": if (this.row >= this._top && this.row <= this._bottom) this._deleteLines(count); break;
      case "P": this._deleteCells(count); break;
      case "@": this._insertCells(count); break;
      case "X": this._fill(this.row, this.column, Math.min(this.column + count, this.columns)); break;
      case "S": this._scrollUp(count); break;
      case "T": this._scrollDown(count); break;
      case "b": for (let left = Math.min(count, this.columns * this.rows); left > 0; left--) this._print(this._last); break;
      case "m": this._style = applyStyle(this._style, body); break;
      case "r": {
        const bottom = Math.min((numbers[1] || this.rows), this.rows) - 1;
        if (count - 1 < bottom) {
          this._setRegion(count - 1, bottom);
          this._moveTo(this._isOrigin ? this._top : 0, 0);
        }
        break;
      }
      case "s": this._save(); break;
      case "u": this._restore(); break;
      case "h": case "l": if (numbers.includes(4)) this._inserts = kind === "h"; break;
      case "n":
        if (numbers[0] === 5) this._reply("\x1b[0n");
        if (numbers[0] === 6) this._reply(`\x1b[${this.row + 1};${this.column + 1}R`);
        break;
      case "c": this._reply("\x1b[?6c"); break;
      default:
    }
  }

  _setMode(mode, isOn) {
    switch (mode) {
      case 1: this.hasApplicationKeys = isOn; break;
      case 6:
        this._isOrigin = isOn;
        this._moveTo(isOn ? this._top : 0, 0);
        break;
      case 7: this._wraps = isOn; break;
      case 25: this.isCursorShown = isOn; break;
      case 47: case 1047: this._setAlternate(isOn); break;
      case 1048: if (isOn) this._save(); else this._restore(); break;
      case 1049:
        if (isOn) this._save();
        this._setAlternate(isOn);
        if (!isOn) this._restore();
        break;
      case 2004: this.bracketsPaste = isOn; break;
      default:
    }
  }

  _setAlternate(isOn) {
    if (isOn === this.isAlternate) return;
    if (isOn) {
      this._main = { lines: this.lines, row: this.row, column: this.column };
      this.lines = this._emptyLines(this.rows);
    } else {
      const { lines, row, column } = this._main;
      this._main = null;
      this.lines = lines;
      this._moveTo(row, column);
    }
    this._setRegion(0, this.rows - 1);
  }

  _fill(row, from, end) {
    this.lines[row].fill(this._blank(), from, end);
  }

  _eraseLine(what) {
    if (what === 0) this._fill(this.row, this.column, this.columns);
    else if (what === 1) this._fill(this.row, 0, this.column + 1);
    else if (what === 2) this._fill(this.row, 0, this.columns);
  }

  _eraseScreen(what) {
    if (what === 3) this.history = [];
    if (what === 0 || what === 1) this._eraseLine(what);
    const [from, end] = what === 0 ? [this.row + 1, this.rows] : what === 1 ? [0, this.row] : what === 2 ? [0, this.rows] : [0, 0];
    for (let row = from; row < end; row++) this._fill(row, 0, this.columns);
  }

  _deleteLines(count) {
    for (let left = Math.min(count, this._bottom - this.row + 1); left > 0; left--) {
      this.lines.splice(this.row, 1);
      this.lines.splice(this._bottom, 0, this._blankLine());
    }
  }

  _deleteCells(count) {
    const line = this.lines[this.row];
    line.splice(this.column, count);
    while (line.length < this.columns) line.push(this._blank());
  }

  _insertCells(count) {
    const line = this.lines[this.row];
    line.splice(this.column, 0, ...Array(Math.min(count, this.columns)).fill(this._blank()));
    line.length = this.columns;
  }
}

/** Whether the sequence at `at`, which ends with the text, is whole. */
function isComplete(text, at, end) {
  const next = text[at + 1];
  if (next === undefined) return false;
  if (next === "[") {
    const last = text.charCodeAt(end - 1);
    return end - at > 2 && last >= 0x40 && last <= 0x7e;
  }
  if ("]PX^_".includes(next)) return text[end - 1] === "\x07" || text.slice(end - 2, end) === "\x1b\\";
  const last = text.charCodeAt(end - 1);
  return end - at > 1 && last >= 0x30 && last <= 0x7e;
}

/** How many cells a character takes: 0 for marks on the character before it, 2 for wide ones. */
export function widthOf(sign) {
  const code = sign.codePointAt(0);
  if (code < 0x300) return 1;
  if (/^[\p{Mn}\p{Me}\p{Cf}]$/u.test(sign)) return 0;
  const isWide = (code >= 0x1100 && code <= 0x115f) || (code >= 0x2e80 && code <= 0xa4cf && code !== 0x303f)
    || (code >= 0xac00 && code <= 0xd7a3) || (code >= 0xf900 && code <= 0xfaff) || (code >= 0xfe30 && code <= 0xfe6f)
    || (code >= 0xff00 && code <= 0xff60) || (code >= 0xffe0 && code <= 0xffe6) || (code >= 0x1f300 && code <= 0x1f64f)
    || (code >= 0x1f900 && code <= 0x1f9ff) || (code >= 0x20000 && code <= 0x3fffd);
  return isWide ? 2 : 1;
}
