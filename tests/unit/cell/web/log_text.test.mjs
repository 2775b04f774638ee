import assert from "node:assert/strict";
import { test } from "node:test";
import {
  BOLD, INVERSE, ITALIC, MOST_CHARACTERS, PLAIN, UNDERLINE,
  headerOf, linkOf, paletteColor, parseLine, plainText, readStored, styleAfter, takeMarkers,
} from "./log_text.js";

const bytes = (text) => new TextEncoder().encode(text);
const shown = (text) => parseLine(text).segments.map((segment) => segment.text).join("");
const styles = (text) => parseLine(text).segments.map(({ text, style }) => [text, style.fg, style.bg, style.flags]);

test("a stamp is told from text, and whether it continues a line", () => {
  const stamp = "2026-11-15T09:40:00.123456Z 01O";
  const of = (text) => headerOf(bytes(text), 0, text.length);
  assert.equal(of(`${stamp} hello`), 32);
  assert.equal(of(`${stamp}+hello`), 43);
  assert.equal(of("hello"), 0);
  assert.equal(of(`${stamp}`), 0);
});

test("styles: flags, 16 and 256 colours, true colour, ends", () => {
  assert.deepEqual(styles("a\x1b[1;3;4;31mb\x1b[22;24mc\x1b[0md"), [
    ["a", null, null, 0], ["b", 1, null, BOLD | ITALIC | UNDERLINE], ["c", 1, null, ITALIC], ["d", null, null, 0],
  ]);
  assert.deepEqual(styles("\x1b[38;5;208;48;5;17mx"), [["x", 208, 17, 0]]);
  assert.deepEqual(styles("\x1b[38;2;1;2;255mx\x1b[39my"), [["x", "#0102ff", null, 0], ["y", null, null, 0]]);
  assert.deepEqual(styles("\x1b[38:5:9mx"), [["x", 9, null, 0]]);
  assert.deepEqual(styles("\x1b[97;107;7mx"), [["x", 15, 15, INVERSE]]);
  assert.deepEqual(styles("\x1b[mx"), [["x", null, null, 0]]);
});

test("colours that do not exist are ignored", () => {
  for (const wrong of ["38;5;256", "38;5", "38;2;1;2", "38;2;1;2;900", "38;9;1", "999", "48;5;-1"]) {
    assert.equal(shown(`\x1b[${wrong}mx`), "x", wrong);
  }
});

test("the palette", () => {
  assert.equal(paletteColor(16), "#000000");
  assert.equal(paletteColor(196), "#ff0000");
  assert.equal(paletteColor(231), "#ffffff");
  assert.equal(paletteColor(232), "#080808");
  assert.equal(paletteColor(255), "#eeeeee");
});

test("a carriage return overwrites the line", () => {
  assert.equal(shown("10%\r50%\r100%"), "100%");
  assert.equal(shown("done\r"), "done");
  assert.equal(shown("done\r\r"), "done");
  assert.equal(shown("abc\x1b[2Kdef"), "def");
  assert.equal(shown("abc\x1b[1Gdef"), "def");
  assert.equal(shown("ab\bc"), "ac");
});

test("other control sequences show nothing and do no harm", () => {
  for (const sequence of ["\x1b[2J", "\x1b[10;20H", "\x1b[?25l", "\x1b[?1049h", "\x1bc", "\x1b(B", "\x1b]0;title\x07",
    "\x1b]52;c;aGk=\x07", "\x1bPq#0\x1b\\", "\x1b_payload\x1b\\", "\x07", "\x00", "\x9b", "\x1b[>c", "\x1b[6n"]) {
    assert.equal(shown(`a${sequence}b`), "ab", JSON.stringify(sequence));
  }
  for (const cut of ["\x1b", "\x1b[", "\x1b[31", "\x1b]8;;http://x", "\x1b(", "\x1b]"]) assert.equal(shown(`a${cut}`), "a");
});

test("links are web addresses only", () => {
  const links = (text) => parseLine(text).segments.map(({ text, link }) => [text, link]);
  assert.deepEqual(links("\x1b]8;;https://example.org/a\x1b\\here\x1b]8;;\x1b\\ on"), [
    ["here", "https://example.org/a"], [" on", ""],
  ]);
  for (const wrong of ["javascript:alert(1)", "data:text/html,x", "file:///etc", " http://x", "http://", "//x", "java\tscript:x"]) {
    assert.equal(linkOf(`8;;${wrong}`), "", wrong);
  }
});

test("marks of direction are visible", () => {
  assert.equal(shown("a\u202eb"), "a⟨U+202E⟩b");
  assert.equal(shown("\u2066x"), "⟨U+2066⟩x");
});

test("sections", () => {
  const { markers, text } = takeMarkers(
    "section_end:1560896353:one\r\x1b[0Ksection_start:1560896360:two[hide_duration=true,collapsed=true]\r\x1b[0KTwo",
  );
  assert.equal(text, "Two");
  assert.deepEqual(markers, [
    { isStart: false, time: 1560896353, name: "one", isCollapsed: false },
    { isStart: true, time: 1560896360, name: "two", isCollapsed: true },
  ]);
  assert.deepEqual(takeMarkers("say section_start:1:x").markers, []);
});

test("stored lines: joined where a stamp continues, also inside a character", () => {
  const one = bytes("2026-11-15T09:40:00.123456Z 01E ab\u00e9".slice(0));
  const cut = one.slice(0, -1);
  const rest = one.slice(-1);
  const joint = bytes("\n2026-11-15T09:40:01.000000Z 01E+");
  const read = readStored(new Uint8Array([...cut, ...joint, ...rest, 10]));
  assert.equal(read.text, "abé");
  assert.equal(read.time, "2026-11-15T09:40:00.123456Z");
  assert.equal(read.isError, true);
  assert.deepEqual(readStored(bytes("plain\n")), { time: "", isError: false, text: "plain", markers: [] });
});

test("the style goes on in the next line", () => {
  assert.equal(styleAfter("x\x1b[31my", PLAIN).fg, 1);
  assert.equal(parseLine("x", styleAfter("\x1b[31m", PLAIN)).segments[0].style.fg, 1);
  assert.equal(styleAfter("\x1b[31mx\x1b[0m", PLAIN), PLAIN);
});

test("long lines are cut, not inside a character", () => {
  const cut = parseLine("x".repeat(1_000_000));
  assert.equal(cut.isCut, true);
  assert.equal(cut.segments[0].text.length, MOST_CHARACTERS);
  const pair = parseLine("x".repeat(MOST_CHARACTERS - 1) + "😀😀");
  assert.equal(pair.segments[0].text.length, MOST_CHARACTERS - 1);
  assert.equal(parseLine("x".repeat(20_000) + "\rshort").isCut, false);
});

test("hostile lines take linear time", () => {
  const lines = ["\x1b[".repeat(500_000), "\x1b]".repeat(500_000), "\x1b[1;".repeat(250_000), "section_start:1:".repeat(60_000),
    "\r".repeat(1_000_000), "\x1b[31mx".repeat(150_000), "section_start:1:aaaa[".repeat(50_000), "\b".repeat(1_000_000),
    `\x1b[${"1;".repeat(500_000)}m`];
  for (const line of lines) {
    const began = performance.now();
    const { text } = takeMarkers(line);
    const { segments } = parseLine(text);
    plainText(text);
    assert.ok(performance.now() - began < 1500, `${JSON.stringify(line.slice(0, 20))}: ${performance.now() - began} ms`);
    assert.ok(segments.length <= 401);
  }
});
