// Shows the beginning of a file of the artifacts as plain text. What it is does not matter: nothing is executed.

import { send } from "./api.js";

const MOST_BYTES = 512 * 1024;
const MOST_COLUMNS = 2000;
const place = document.getElementById("preview");
const note = document.getElementById("preview-note");

async function readBeginning() {
  const stop = new AbortController();
  const response = await send("GET", place.dataset.content, undefined, { signal: stop.signal });
  const reader = response.body.getReader();
  const parts = [];
  let size = 0;
  for (let part; size < MOST_BYTES && !(part = await reader.read()).done;) {
    parts.push(part.value);
    size += part.value.length;
  }
  const isWhole = size < MOST_BYTES;
  if (!isWhole) stop.abort();
  return { bytes: new Uint8Array(await new Blob(parts).arrayBuffer()).subarray(0, MOST_BYTES), isWhole };
}

function isText(bytes) {
  return !bytes.subarray(0, 8192).includes(0);
}

try {
  const { bytes, isWhole } = await readBeginning();
  if (isText(bytes)) {
    const lines = new TextDecoder().decode(bytes).split("\n");
    const shown = lines.map((line) => (line.length > MOST_COLUMNS ? `${line.slice(0, MOST_COLUMNS)} …` : line)).join("\n");
    place.textContent = shown;
    place.hidden = false;
    note.textContent = isWhole ? "" : "Only the beginning is shown; download the file to see all.";
    if (!bytes.length) note.textContent = "The file is empty.";
  } else {
    note.textContent = "This is no text. Download the file to open it.";
  }
} catch (error) {
  note.textContent = `${error.message} Reload the page to try again.`;
}
