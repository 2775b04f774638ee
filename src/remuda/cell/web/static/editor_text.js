// Pure functions about the text of the editor.

const STEP = "  ";

/** Line and column of an offset; both begin with 1, and a column counts UTF-16 units. */
export function lineAndColumn(text, offset) {
  const before = text.slice(0, offset);
  const start = before.lastIndexOf("\n") + 1;
  return { line: before.split("\n").length, column: offset - start + 1 };
}

/** The offset of a line and a column; the nearest one if the text is shorter. */
export function offsetOf(text, line, column) {
  const lines = text.split("\n");
  const row = Math.min(Math.max(line, 1), lines.length) - 1;
  let offset = 0;
  for (let index = 0; index < row; index++) offset += lines[index].length + 1;
  return offset + Math.min(Math.max(column, 1) - 1, lines[row].length);
}

/** What the Tab key does: replace `start` to `end` by `text`, then select `selection`. Null: nothing to do. */
export function indent(text, from, to, isBack) {
  if (from === to && !isBack) {
    const column = from - (text.lastIndexOf("\n", from - 1) + 1);
    const blanks = STEP.slice(column % STEP.length);
    return { start: from, end: to, text: blanks, selection: [from + blanks.length, from + blanks.length] };
  }
  const start = text.lastIndexOf("\n", from - 1) + 1;
  // A selection that ends at the beginning of a line does not contain that line.
  const last = to > from && text[to - 1] === "\n" ? to - 1 : to;
  const newline = text.indexOf("\n", last);
  const end = newline < 0 ? text.length : newline;
  const lines = text.slice(start, end).split("\n");
  const changed = lines.map((line) => (isBack ? line.replace(/^ {1,2}|^\t/, "") : line && STEP + line));
  const joined = changed.join("\n");
  if (joined === text.slice(start, end)) return null;
  const moved = changed[0].length - lines[0].length;
  const grown = joined.length - (end - start);
  return { start, end, text: joined, selection: [Math.max(from + moved, start), Math.max(to + grown, start)] };
}
