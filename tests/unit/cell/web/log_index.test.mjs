import assert from "node:assert/strict";
import { test } from "node:test";
import { LogIndex, Rows, hiddenRanges } from "./log_index.js";
import { PLAIN } from "./log_text.js";

const bytes = (text) => new TextEncoder().encode(text);
const STAMP = "2026-11-15T09:40:00.123456Z 01O";

function indexOf(text, piece = text.length || 1) {
  const index = new LogIndex();
  const all = bytes(text);
  for (let at = 0; at < all.length; at += piece) index.feed(all.subarray(at, at + piece));
  return index;
}

function linesOf(text, piece) {
  const index = indexOf(text, piece);
  const all = bytes(text);
  return Array.from({ length: index.lines }, (_, line) =>
    new TextDecoder().decode(all.subarray(index.startOf(line), index.startOf(line + 1))));
}

test("lines begin where they begin, whatever the pieces", () => {
  const text = "one\ntwo\n\nfour";
  for (const piece of [1, 2, 3, 5, 100]) assert.deepEqual(linesOf(text, piece), ["one\n", "two\n", "\n", "four"], piece);
  assert.equal(indexOf("").lines, 0);
});

test("a line that continues another of its stream is part of it", () => {
  const text = `${STAMP} a\n${STAMP}+b\n${STAMP} c\n2026-11-15T09:40:00.123456Z 02O+d\n`;
  for (const piece of [1, 7, 33, 1000]) {
    assert.deepEqual(linesOf(text, piece).map((line) => line.split("\n").length - 1), [2, 1, 1], piece);
  }
});

test("sections nest, end with those inside, and tell their times", () => {
  const text = [
    "section_start:10:outer\r\x1b[0KOuter", "section_start:11:inner[collapsed=true]\r\x1b[0KInner", "text",
    "section_end:15:inner\r\x1b[0K", "more", "section_end:20:outer\r\x1b[0K", "after", "section_end:21:none\r\x1b[0K", "",
  ].join("\n");
  for (const piece of [1, 13, 1000]) {
    const index = indexOf(text, piece);
    assert.deepEqual(index.sections.map(({ name, first, end, began, ended, isCollapsed, depth }) => [name, first, end, began, ended, isCollapsed, depth]), [
      ["outer", 0, 4, 10, 20, false, 0], ["inner", 1, 3, 11, 15, true, 1],
    ]);
    assert.equal(index.lines, 5, "ends of sections alone are no lines");
  }
});

test("a section that is not closed ends with the one around it", () => {
  const index = indexOf("section_start:1:a\r\x1b[0KA\nsection_start:2:b\r\x1b[0KB\nx\nsection_end:9:a\r\x1b[0K\n");
  assert.deepEqual(index.sections.map((section) => [section.end, section.ended]), [[3, 9], [3, 9]]);
});

test("the style at the beginning of each line", () => {
  const index = indexOf("a\n\x1b[31mb\nc\nd\x1b[0m\ne\n");
  assert.deepEqual([0, 1, 2, 3, 4].map((line) => index.styleOf(line).fg), [null, null, 1, 1, null]);
  assert.equal(index.styleOf(4), PLAIN);
});

test("a huge line is one line", () => {
  const index = new LogIndex();
  for (let count = 0; count < 100; count++) index.feed(bytes("x".repeat(100_000)));
  index.feed(bytes("\nnext\n"));
  assert.equal(index.lines, 2);
  assert.equal(index.startOf(1), 10_000_001);
  assert.equal(index.lineOf(9_999_999), 0);
  assert.equal(index.lineOf(10_000_001), 1);
});

test("a million sections or styles stay bounded", () => {
  const index = indexOf("section_start:1:x\r\x1b[0Ky\n\x1b[31mz\n\x1b[32mz\n".repeat(200_000));
  assert.equal(index.lines, 600_000);
  assert.ok(index.sections.length <= 5000);
  assert.ok(index._styles.length <= 100_001);
});

test("rows leave out what collapsed sections hide", () => {
  const sections = [{ first: 2, end: 6 }, { first: 3, end: 5 }, { first: 8, end: -1 }];
  assert.deepEqual(hiddenRanges(sections, () => true, 12), [[3, 6], [9, 12]]);
  assert.deepEqual(hiddenRanges(sections, (section) => section.first === 3, 12), [[4, 5]]);
  const rows = new Rows(12, [[3, 6], [9, 12]]);
  assert.equal(rows.count, 6);
  assert.deepEqual([0, 1, 2, 3, 4, 5].map((row) => rows.lineAt(row)), [0, 1, 2, 6, 7, 8]);
  assert.deepEqual([0, 2, 4, 6, 8, 10].map((line) => rows.rowOf(line)), [0, 2, 2, 3, 5, 5]);
});
