// Reads one line of a job's log: time stamp, section markers, and the terminal's control sequences, which become styled
// text. Pure. Everything is hostile: each function is linear in the length of its input, and nothing becomes markup.
//
// A line with a stamp begins with 32 bytes: time, two digits for the stream, "O" or "E", and a blank, or "+" if the line
// continues the line before it of the same stream (docs: traces of job_files/log.py). Older runners write no stamps.

export const HEADER_BYTES = 32;
export const MOST_CHARACTERS = 5000;
const MOST_SEGMENTS = 400;
const LONGEST_LINK = 2000;

export const BOLD = 1, DIM = 2, ITALIC = 4, UNDERLINE = 8, INVERSE = 16, HIDDEN = 32, STRUCK = 64;
const FLAGS = { 1: BOLD, 2: DIM, 3: ITALIC, 4: UNDERLINE, 7: INVERSE, 8: HIDDEN, 9: STRUCK };
const ENDS = { 21: BOLD, 22: BOLD | DIM, 23: ITALIC, 24: UNDERLINE, 27: INVERSE, 28: HIDDEN, 29: STRUCK };

/** The style of text: `fg` and `bg` are null, a number of the palette (0 to 255) or "#rrggbb". */
export const PLAIN = Object.freeze({ fg: null, bg: null, flags: 0 });

const DASH = 0x2d, T = 0x54, Z = 0x5a, BLANK = 0x20, PLUS = 0x2b, COLON = 0x3a;

/** 0 if these bytes do not begin with a stamp; else 32 (a line begins) or 43 (the code of "+": it continues). */
export function headerOf(bytes, at, end) {
  if (end - at < HEADER_BYTES) return 0;
  const last = bytes[at + 31];
  const isHeader = (last === BLANK || last === PLUS) && bytes[at + 4] === DASH && bytes[at + 7] === DASH
    && bytes[at + 10] === T && bytes[at + 13] === COLON && bytes[at + 26] === Z && bytes[at + 27] === BLANK;
  return isHeader ? last : 0;
}

const MARKER = /section_(start|end):(\d{1,12}):([^\r\n[\]]{1,200})(?:\[([^\r\n\]]{0,200})\])?\r(?:\x1b\[0K)?/g;

/** The section markers in a text: {isStart, time, name, isCollapsed}; and the text without them. */
export function takeMarkers(text) {
  const markers = [];
  if (!text.includes("section_")) return { markers, text };
  const rest = text.replace(MARKER, (_, kind, time, name, options) => {
    const isCollapsed = (options ?? "").split(",").some((option) => option.trim() === "collapsed=true");
    markers.push({ isStart: kind === "start", time: Number(time), name, isCollapsed });
    return "";
  });
  return { markers, text: rest };
}

/** Apply the parameters of a "select graphic rendition" sequence, such as "1;38;5;9", to a style. */
export function applyStyle(style, parameters) {
  let { fg, bg, flags } = style;
  const codes = parameters.replaceAll(":", ";").split(";", 64).map(Number);
  for (let place = 0; place < codes.length; place++) {
    const code = codes[place];
    if (code === 0) [fg, bg, flags] = [null, null, 0];
    else if (code in FLAGS) flags |= FLAGS[code];
    else if (code in ENDS) flags &= ~ENDS[code];
    else if (code >= 30 && code <= 37) fg = code - 30;
    else if (code >= 40 && code <= 47) bg = code - 40;
    else if (code >= 90 && code <= 97) fg = code - 82;
    else if (code >= 100 && code <= 107) bg = code - 92;
    else if (code === 39) fg = null;
    else if (code === 49) bg = null;
    else if (code === 38 || code === 48) {
      let color;
      if (codes[place + 1] === 5) {
        color = paletteNumber(codes[place + 2]);
        place += 2;
      } else if (codes[place + 1] === 2) {
        color = hexColor(codes.slice(place + 2, place + 5));
        place += 4;
      }
      if (color === undefined) continue;
      if (code === 38) fg = color;
      else bg = color;
    }
  }
  return fg === null && bg === null && flags === 0 ? PLAIN : { fg, bg, flags };
}

function paletteNumber(code) {
  return Number.isInteger(code) && code >= 0 && code <= 255 ? code : undefined;
}

function hexColor(parts) {
  const isColor = parts.length === 3 && parts.every((part) => Number.isInteger(part) && part >= 0 && part <= 255);
  return isColor ? `#${parts.map((part) => part.toString(16).padStart(2, "0")).join("")}` : undefined;
}

const STEPS = [0, 95, 135, 175, 215, 255];

/** The colour of a number of the palette from 16 on: a cube of 216 colours, then 24 greys. */
export function paletteColor(number) {
  if (number >= 232) return hexColor(Array(3).fill(8 + (number - 232) * 10));
  const cube = number - 16;
  return hexColor([STEPS[Math.floor(cube / 36)], STEPS[Math.floor(cube / 6) % 6], STEPS[cube % 6]]);
}

/** The end of the control sequence that begins with the escape character at `at`. `kind`: the final character of a CSI
    sequence, "]" for an OSC string, "" for everything else; `body`: its parameters. */
export function readSequence(text, at) {
  const next = text[at + 1];
  if (next === "[") {
    let end = at + 2;
    while (end < text.length && text.charCodeAt(end) >= 0x20 && text.charCodeAt(end) < 0x40) end++;
    const final = text.charCodeAt(end);
    if (!(final >= 0x40 && final <= 0x7e)) return { kind: "", body: "", end };
    return { kind: text[end], body: text.slice(at + 2, end), end: end + 1 };
  }
  if (next !== undefined && "]PX^_".includes(next)) {
    let end = at + 2;
    while (end < text.length && text[end] !== "\x07" && text[end] !== "\x1b") end++;
    const body = text.slice(at + 2, end);
    if (text[end] === "\x07") end++;
    else if (text[end] === "\x1b" && text[end + 1] === "\\") end += 2;
    return { kind: next === "]" ? "]" : "", body, end };
  }
  let end = at + 1;
  while (end < text.length && text.charCodeAt(end) >= 0x20 && text.charCodeAt(end) < 0x30) end++;
  const final = text.charCodeAt(end);
  return { kind: "", body: "", end: final >= 0x30 && final <= 0x7e ? end + 1 : end };
}

/** The style after a text, which had `style` before it. */
export function styleAfter(text, style) {
  for (let at = text.indexOf("\x1b"); at >= 0;) {
    const { kind, body, end } = readSequence(text, at);
    if (kind === "m" && !/[<-?]/.test(body)) style = applyStyle(style, body);
    at = text.indexOf("\x1b", end);
  }
  return style;
}

/** The address of a link in an OSC 8 sequence; empty if there is none, or it is no web address. */
export function linkOf(body) {
  if (!body.startsWith("8;")) return undefined;
  const address = body.slice(body.indexOf(";", 2) + 1);
  if (address.length > LONGEST_LINK || !/^https?:\/\/[^\s\x00-\x1f]+$/i.test(address)) return "";
  try {
    return new URL(address).href;
  } catch {
    return "";
  }
}

// Characters that have a function for the direction of text: shown, because they can make a line look like another one.
const DIRECTIONS = /[\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]/g;

function showDirections(text) {
  return text.replace(DIRECTIONS, (sign) => `⟨U+${sign.codePointAt(0).toString(16).toUpperCase().padStart(4, "0")}⟩`);
}

const CONTROL = /[\x00-\x08\x0a-\x1f\x7f-\x9f]/;
const CONTROLS = /[\x00-\x08\x0a-\x1f\x7f-\x9f]/g;

/** Parse the text of one line, which has `style` before it, as a terminal would show it in the end: a carriage return
    overwrites the line. Returns segments {text, style, link} and whether the line is cut. */
export function parseLine(text, style = PLAIN) {
  let segments = [];
  let link = "";
  let count = 0;
  let isCut = false;
  let from = 0;

  const add = (raw) => {
    if (!raw || isCut) return;
    let piece = showDirections(CONTROL.test(raw) ? raw.replace(CONTROLS, "") : raw);
    if (!piece) return;
    if (count + piece.length > MOST_CHARACTERS) {
      // Not between the two halves of a character.
      const room = MOST_CHARACTERS - count;
      piece = piece.slice(0, /[\ud800-\udbff]/.test(piece[room - 1] ?? "") ? room - 1 : room);
      isCut = true;
    }
    count += piece.length;
    const last = segments.at(-1);
    if (last && ((last.style === style && last.link === link) || segments.length >= MOST_SEGMENTS)) last.text += piece;
    else segments.push({ text: piece, style, link });
  };
  const clear = () => {
    segments = [];
    count = 0;
    isCut = false;
  };

  text = text.replace(/\r+$/, "");
  for (let at = 0; at < text.length;) {
    const code = text.charCodeAt(at);
    if (code === 0x0d) {
      from = at += 1;
      clear();
    } else if (code === 0x08) {
      add(text.slice(from, at));
      from = at += 1;
      const last = segments.at(-1);
      if (last?.text.length) {
        last.text = last.text.slice(0, -1);
        count--;
      }
    } else if (code === 0x1b) {
      add(text.slice(from, at));
      const { kind, body, end } = readSequence(text, at);
      if (kind === "m" && !/[<-?]/.test(body)) style = applyStyle(style, body);
      else if (kind === "]") link = linkOf(body) ?? link;
      else if ((kind === "K" && (body === "2" || body === "1")) || (kind === "G" && Number(body || 1) <= 1)) clear();
      from = at = end;
    } else {
      at++;
    }
  }
  add(text.slice(from));
  return { segments: segments.filter((segment) => segment.text), isCut };
}

/** The text of a line as it is shown, for searching. */
export function plainText(text) {
  if (!CONTROL.test(text)) return text;
  return parseLine(text).segments.map((segment) => segment.text).join("");
}

const decoder = new TextDecoder();

/** Read the stored lines that are shown as one line. Returns {time, isError, text, markers}: `time` is the stamp, empty
    without one. */
export function readStored(bytes) {
  const header = headerOf(bytes, 0, bytes.length);
  const parts = [];
  let length = 0;
  for (let at = 0; at < bytes.length;) {
    let end = bytes.indexOf(10, at);
    if (end < 0) end = bytes.length;
    const from = headerOf(bytes, at, end) ? at + HEADER_BYTES : at;
    parts.push(bytes.subarray(from, end));
    length += end - from;
    at = end + 1;
  }
  let body = parts[0] ?? new Uint8Array();
  if (parts.length > 1) {
    body = new Uint8Array(length);
    let place = 0;
    for (const part of parts) {
      body.set(part, place);
      place += part.length;
    }
  }
  const { text, markers } = takeMarkers(decoder.decode(body));
  const stamp = header ? decoder.decode(bytes.subarray(0, HEADER_BYTES)) : "";
  return { time: stamp.slice(0, 27), isError: stamp[30] === "E", text, markers };
}
