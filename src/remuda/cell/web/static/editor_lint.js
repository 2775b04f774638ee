// Reads the answer of the API to a check: mistakes and warnings with their places.

const PLACED = /^(.*?):(\d+):(\d+): (.*)$/s;

function readText(kind, text, path) {
  const match = PLACED.exec(text);
  if (!match) return { kind, file: "", line: 0, column: 0, message: text, suggestion: "", isHere: false };
  const [, file, line, column, message] = match;
  return { kind, file, line: Number(line), column: Number(column), message, suggestion: "", isHere: file === path };
}

/** Return the mistakes, then the warnings: kind ("bad" or "warn"), file, line, column, message, suggestion, isHere. */
export function readLint(answer, path) {
  const mistakes = (answer.mistakes ?? []).map(({ file, line, column, key, message, suggestion }) => ({
    kind: "bad",
    file,
    line,
    column,
    message: key ? `${key}: ${message}` : message,
    suggestion,
    isHere: file === path,
  }));
  // Errors without a place, such as that of a missing ref, are only texts.
  const errors = mistakes.length ? [] : (answer.errors ?? []).map((text) => readText("bad", text, path));
  const warnings = (answer.warnings ?? []).map((text) => readText("warn", text.replace(": warning: ", ": "), path));
  return [...mistakes, ...errors, ...warnings];
}
