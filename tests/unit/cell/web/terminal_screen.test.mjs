import assert from "node:assert/strict";
import { test } from "node:test";
import { Frames, encodeFrame, sizeFrame } from "./shell_frames.js";
import { Screen, widthOf } from "./terminal_screen.js";

function shown(text, columns = 10, rows = 4) {
  const screen = new Screen(columns, rows);
  screen.write(text);
  return textOf(screen);
}

const textOf = (screen) => screen.lines.map((line) => line.map((cell) => cell.text).join("").trimEnd());

test("text, line feeds, tabs and wrapping", () => {
  assert.deepEqual(shown("ab\r\ncd"), ["ab", "cd", "", ""]);
  assert.deepEqual(shown("0123456789ab"), ["0123456789", "ab", "", ""]);
  assert.deepEqual(shown("0123456789\r\nx"), ["0123456789", "x", "", ""]);
  assert.deepEqual(shown("a\tb"), ["a       b", "", "", ""]);
  assert.deepEqual(shown("abc\b\bX"), ["aXc", "", "", ""]);
  assert.deepEqual(shown("\x1b[?7l0123456789ab"), ["012345678b", "", "", ""]);
});

test("lines that leave at the top are history", () => {
  const screen = new Screen(10, 2);
  screen.write("1\r\n2\r\n3");
  assert.deepEqual(textOf(screen), ["2", "3"]);
  assert.equal(screen.history[0][0].text, "1");
});

test("the cursor moves", () => {
  assert.deepEqual(shown("\x1b[2;3Hx\x1b[Ay\x1b[1Gz"), ["z  y", "  x", "", ""]);
  assert.deepEqual(shown("\x1b[99;99Hx\x1b[H\x1b[5Cy"), ["     y", "", "", "         x"]);
  assert.deepEqual(shown("a\x1b7\x1b[3;3Hb\x1b8c"), ["ac", "", "  b", ""]);
});

test("erasing, inserting and deleting", () => {
  assert.deepEqual(shown("abcdef\x1b[3G\x1b[K"), ["ab", "", "", ""]);
  assert.deepEqual(shown("abcdef\x1b[3G\x1b[1K"), ["   def", "", "", ""]);
  assert.deepEqual(shown("a\r\nb\r\nc\x1b[2J"), ["", "", "", ""]);
  assert.deepEqual(shown("a\r\nb\r\nc\x1b[2;1H\x1b[J"), ["a", "", "", ""]);
  assert.deepEqual(shown("abcdef\x1b[2G\x1b[2P"), ["adef", "", "", ""]);
  assert.deepEqual(shown("abc\x1b[2G\x1b[2@X"), ["aX bc", "", "", ""]);
  assert.deepEqual(shown("a\r\nb\r\nc\x1b[2;1H\x1b[L"), ["a", "", "b", "c"]);
  assert.deepEqual(shown("a\r\nb\r\nc\x1b[2;1H\x1b[M"), ["a", "c", "", ""]);
});

test("a scroll region", () => {
  assert.deepEqual(shown("1\r\n2\r\n3\r\n4\x1b[2;3r\x1b[3;1H\r\nx"), ["1", "3", "x", "4"]);
  assert.deepEqual(shown("1\r\n2\r\n3\r\n4\x1b[2;3r\x1b[2;1H\x1bM"), ["1", "", "2", "4"]);
});

test("the alternate screen comes and goes", () => {
  const screen = new Screen(10, 2);
  screen.write("shell\x1b[?1049h\x1b[Hvi");
  assert.deepEqual(textOf(screen), ["vi", ""]);
  screen.write("\x1b[?1049l!");
  assert.deepEqual(textOf(screen), ["shell!", ""]);
});

test("sequences that come in pieces", () => {
  const screen = new Screen(10, 2);
  for (const sign of "\x1b[31ma\x1b]0;title\x07\x1b[2;2Hb\x1b(0q\x1b(B") screen.write(sign);
  assert.deepEqual(textOf(screen), ["a", " b─"]);
  assert.equal(screen.lines[0][0].style.fg, 1);
  assert.equal(screen.title, "title");
});

test("questions are answered, others are not", () => {
  const replies = [];
  const screen = new Screen(10, 4, (text) => replies.push(text));
  screen.write("\x1b[2;3H\x1b[6n\x1b[5n\x1b[c\x1b]52;c;?\x07\x1b[21t\x1bP$qm\x1b\\");
  assert.deepEqual(replies, ["\x1b[2;3R", "\x1b[0n", "\x1b[?6c"]);
});

test("wide characters and marks", () => {
  assert.equal(widthOf("日"), 2);
  assert.equal(widthOf("\u0301"), 0);
  assert.deepEqual(shown("日e\u0301x"), ["日e\u0301x", "", "", ""]);
  assert.ok(shown("e" + "\u0301".repeat(10_000))[0].length < 20);
});

test("sizes change", () => {
  const screen = new Screen(10, 4);
  screen.write("1\r\n2\r\n3\r\n4");
  screen.resize(5, 2);
  assert.deepEqual(textOf(screen), ["3", "4"]);
  assert.equal(screen.history.length, 2);
  screen.resize(20, 5);
  screen.write("x");
  assert.deepEqual(textOf(screen), ["3", "4x", "", "", ""]);
});

test("hostile output stays bounded and quick", () => {
  const screen = new Screen(80, 24);
  const began = performance.now();
  for (const text of ["\x1b[9999b".repeat(200), "\x1b[9999L\x1b[9999S\x1b[9999@".repeat(500), "\x1b]".repeat(100_000), "\x1b[9999;9999r\x1b[0;0r",
    "\x1b[?1049h\x1b[?1049l".repeat(2000), "x".repeat(200_000), "\x1b[" + "1;".repeat(100_000), "\x1bc", "\x1b[99999999999A"]) {
    screen.write(text);
    screen.write("\x18\x1b\\");
  }
  assert.ok(performance.now() - began < 5000, `${performance.now() - began} ms`);
  assert.equal(screen.lines.length, 24);
  assert.ok(screen.lines.every((line) => line.length === 80));
  assert.ok(screen.history.length <= 2000);
});

test("frames", () => {
  const bytes = new Uint8Array([...encodeFrame("o"), ...encodeFrame("d", new TextEncoder().encode("hi")), ...encodeFrame("c", new Uint8Array([0, 0, 0, 3]))]);
  for (const piece of [1, 3, 100]) {
    const frames = new Frames();
    const all = [];
    for (let at = 0; at < bytes.length; at += piece) all.push(...frames.feed(bytes.subarray(at, at + piece)));
    assert.deepEqual(all.map(({ kind, data }) => [kind, [...data]]), [["o", []], ["d", [104, 105]], ["c", [0, 0, 0, 3]]]);
  }
  assert.deepEqual([...sizeFrame(80, 24)], [115, 0, 0, 0, 4, 0, 80, 0, 24]);
  assert.throws(() => new Frames().feed(new Uint8Array([0, 0, 0, 0, 0])));
});
