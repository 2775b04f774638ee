// Shows the lines of a log: only those that are seen are in the page. The scroll bar belongs to a spacer as high as all
// rows would be; the row at the same share of the log is placed at the same share of the window, so rows may be higher
// than others, and a log may have more lines than a browser can scroll pixels.

import { BOLD, DIM, HIDDEN, INVERSE, ITALIC, STRUCK, UNDERLINE, paletteColor } from "./log_text.js";
import { formatDuration } from "./times.js";

export const ROW_PIXELS = 20;
const MOST_PIXELS = 15_000_000;
const EXTRA_ROWS = 6;
const STYLES = [[BOLD, "bold"], [DIM, "dim"], [ITALIC, "italic"], [UNDERLINE, "underline"], [STRUCK, "struck"], [HIDDEN, "concealed"]];

export class RowView {
  /** `model`: rows (Rows), line(number) or undefined, sectionAt(line), isCollapsed(section), isChosen(line), search text
      `wanted`, `current` (the current hit), `showsTimes`, `want(from, count)` asks for lines. */
  constructor(scroller, model) {
    this._scroller = scroller;
    this._model = model;
    this._spacer = document.createElement("div");
    this._spacer.className = "log-spacer";
    this._window = document.createElement("div");
    this._window.className = "log-window";
    this._inner = document.createElement("div");
    this._inner.className = "log-rows";
    this._window.append(this._inner);
    this._spacer.append(this._window);
    scroller.append(this._spacer);
    this._elements = new Map();
    this._widest = 0;
    this._height = 0;
    this._frame = 0;
    scroller.addEventListener("scroll", () => this.draw(), { passive: true });
    new ResizeObserver(() => this.draw()).observe(scroller);
  }

  get atEnd() {
    return this._scroller.scrollTop + this._scroller.clientHeight >= this._scroller.scrollHeight - 4;
  }

  /** Draw in the next frame. */
  draw() {
    this._frame ||= requestAnimationFrame(() => {
      this._frame = 0;
      this.drawNow();
    });
  }

  /** All rows are built again at the next drawing: their look has changed. */
  forget() {
    this._elements.clear();
    this._widest = 0;
    this._inner.style.removeProperty("min-width");
    this.draw();
  }

  /** These lines have changed. */
  forgetLines(from, count) {
    for (let line = from; line < from + count; line++) this._elements.delete(line);
  }

  setHeight() {
    const height = Math.min(this._model.rows.count * ROW_PIXELS, MOST_PIXELS);
    if (height === this._height) return;
    this._height = height;
    this._spacer.style.setProperty("height", `${height}px`);
  }

  scrollToEnd() {
    this.setHeight();
    this._scroller.scrollTop = this._scroller.scrollHeight;
    this.draw();
  }

  /** Scroll so that a line is seen, in the middle of the window if it was not. */
  show(line) {
    this.setHeight();
    const rows = this._model.rows;
    const window = this._scroller.clientHeight;
    const top = (rows.rowOf(line) + 0.5) / Math.max(rows.count, 1) * Math.max(this._height, window) - window / 2;
    this._scroller.scrollTop = Math.max(top, 0);
    this.draw();
  }

  drawNow() {
    this.setHeight();
    const { rows } = this._model;
    const window = this._scroller.clientHeight;
    this._window.style.setProperty("height", `${window}px`);
    const way = Math.max(this._scroller.scrollHeight - window, 0);
    const fits = rows.count * ROW_PIXELS <= window;
    const share = way > 1 ? Math.min(Math.max(this._scroller.scrollTop / way, 0), 1) : 0;
    const anchor = share * rows.count;
    const middle = Math.min(Math.floor(anchor), Math.max(rows.count - 1, 0));
    const above = share * window;
    const first = Math.max(middle - Math.ceil(above / ROW_PIXELS) - EXTRA_ROWS, 0);
    const end = Math.min(middle + Math.ceil((window - above) / ROW_PIXELS) + EXTRA_ROWS, rows.count);
    this._fill(first, end);
    let top = 0;
    if (!fits || share > 0) {
      const element = this._inner.children[middle - first];
      if (element) top = above - (element.offsetTop + (anchor - middle) * element.offsetHeight);
    }
    this._inner.style.setProperty("transform", `translateY(${Math.round(top)}px)`);
    const width = this._inner.scrollWidth;
    if (width > this._widest && !this._model.wraps) {
      this._widest = width;
      this._inner.style.setProperty("min-width", `${width}px`);
    }
  }

  _fill(first, end) {
    const shown = new Map();
    let missing = -1, last = -1;
    for (let row = first; row < end; row++) {
      const number = this._model.rows.lineAt(row);
      const line = this._model.line(number);
      let element = this._elements.get(number);
      if (!element || (element.isEmpty && line)) {
        element = { node: this._build(number, line), isEmpty: !line };
      }
      if (!line) {
        if (missing < 0) missing = number;
        last = number;
      }
      shown.set(number, element);
    }
    this._elements = shown;
    const nodes = [...shown.values()].map((element) => element.node);
    const present = this._inner.children;
    if (nodes.length !== present.length || nodes.some((node, place) => node !== present[place])) {
      this._inner.replaceChildren(...nodes);
    }
    if (missing >= 0) this._model.want(missing, Math.min(last - missing + 1, 1000));
  }

  _build(number, line) {
    const model = this._model;
    const row = document.createElement("div");
    row.className = "row";
    row.dataset.line = number + 1;
    if (line?.isError) row.classList.add("error");
    if (model.isChosen(number)) row.classList.add("chosen");
    if (model.current === number) row.classList.add("current");
    const gutter = document.createElement("span");
    gutter.className = "number";
    gutter.textContent = model.hasNumbers ? number + 1 : "·";
    row.append(gutter);
    if (model.showsTimes) {
      const time = document.createElement("span");
      time.className = "time";
      time.textContent = line?.time ? localTime(line.time) : "";
      if (line?.time) time.title = line.time;
      row.append(time);
    }
    const text = document.createElement("span");
    text.className = "text";
    const section = line && model.sectionAt(number);
    if (section) {
      row.classList.add("section");
      text.append(this._toggle(section, line));
      const duration = document.createElement("span");
      duration.className = "duration";
      if (section.end >= 0) duration.textContent = formatDuration(Math.max(section.ended - section.began, 0));
      text.append(duration);
    } else if (line) {
      if (line.cutBytes) text.append(moreButton(number, line.cutBytes));
      addSegments(text, line.segments, model.wanted);
    }
    row.append(text);
    return row;
  }

  _toggle(section, line) {
    const button = document.createElement("button");
    button.type = "button";
    button.className = "toggle";
    button.dataset.section = section.first;
    button.dataset.test = "section";
    button.setAttribute("aria-expanded", String(!this._model.isCollapsed(section)));
    if (line.segments.length) addSegments(button, line.segments, this._model.wanted, { hasLinks: false });
    else button.append(section.name);
    return button;
  }
}

function moreButton(number, bytes) {
  const button = document.createElement("button");
  button.type = "button";
  button.className = "more";
  button.dataset.whole = number;
  button.dataset.test = "whole-line";
  button.textContent = `cut: show all ${Math.ceil(bytes / 1024)} KiB`;
  return button;
}

/** The time of a stamp in the time zone of the browser. */
function localTime(stamp) {
  const moment = new Date(`${stamp.slice(0, 23)}Z`);
  if (Number.isNaN(moment.getTime())) return "";
  const part = (number, size = 2) => String(number).padStart(size, "0");
  return `${part(moment.getHours())}:${part(moment.getMinutes())}:${part(moment.getSeconds())}.${part(moment.getMilliseconds(), 3)}`;
}

/** Add styled text to an element, with the places that match `wanted` (lower case) marked. */
function addSegments(parent, segments, wanted, { hasLinks = true } = {}) {
  const marks = wanted ? findMarks(segments, wanted) : [];
  let place = 0;
  for (const segment of segments) {
    const box = segment.link && hasLinks ? linkTo(segment.link) : document.createElement("span");
    const isPlain = paintStyle(box, segment.style);
    addMarked(box, segment.text, place, marks);
    place += segment.text.length;
    if (isPlain && box.localName === "span") parent.append(...box.childNodes);
    else parent.append(box);
  }
}

function linkTo(address) {
  const link = document.createElement("a");
  if (!/^https?:\/\//i.test(address)) return document.createElement("span");
  link.href = address;
  link.rel = "noopener noreferrer nofollow";
  link.target = "_blank";
  link.title = address;
  return link;
}

/** Give an element the look of a style. Returns whether it has none. */
export function paintStyle(element, style) {
  const { fg, bg, flags } = style;
  if (fg === null && bg === null && flags === 0) return true;
  if (flags & INVERSE) {
    // The palette has other shades for text than for backgrounds, so classes of their own swap them.
    paintColor(element, bg ?? "back", "inverse-f", "color");
    paintColor(element, fg ?? "front", "inverse-g", "background-color");
  } else {
    paintColor(element, fg, "f", "color");
    paintColor(element, bg, "g", "background-color");
  }
  for (const [flag, name] of STYLES) if (flags & flag) element.classList.add(name);
  return false;
}

function paintColor(element, color, prefix, property) {
  if (color === null) return;
  if (typeof color === "string" && color[0] === "#") element.style.setProperty(property, color);
  else if (typeof color === "number" && color >= 16) element.style.setProperty(property, paletteColor(color));
  else element.classList.add(`${prefix}-${color}`);
}

function findMarks(segments, wanted) {
  const text = segments.map((segment) => segment.text).join("");
  const lower = text.toLowerCase();
  const marks = [];
  if (lower.length !== text.length) return marks;
  for (let at = lower.indexOf(wanted); at >= 0 && marks.length < 100; at = lower.indexOf(wanted, at + wanted.length)) {
    marks.push([at, at + wanted.length]);
  }
  return marks;
}

function addMarked(parent, text, start, marks) {
  let at = 0;
  for (const [first, end] of marks) {
    const from = Math.max(first - start, at), to = Math.min(end - start, text.length);
    if (to <= from) continue;
    if (from > at) parent.append(text.slice(at, from));
    const mark = document.createElement("mark");
    mark.textContent = text.slice(from, to);
    parent.append(mark);
    at = to;
  }
  if (at < text.length) parent.append(text.slice(at));
}
