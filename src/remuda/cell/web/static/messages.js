// Messages at the top of the page: what was done, or what went wrong and what to do.

const SHOWN_MILLISECONDS = 6000;

/** Show a message. Problems stay until they are closed; others vanish. */
export function showMessage(text, { isProblem = false } = {}) {
  const box = document.createElement("div");
  box.className = isProblem ? "message problem" : "message";
  box.dataset.test = isProblem ? "problem" : "message";
  if (isProblem) box.setAttribute("role", "alert");
  const words = document.createElement("span");
  words.textContent = text;
  const close = document.createElement("button");
  close.type = "button";
  close.textContent = "×";
  close.setAttribute("aria-label", "Close this message");
  close.addEventListener("click", () => box.remove());
  box.append(words, close);
  const place = document.getElementById("messages");
  if (isProblem) for (const old of place.querySelectorAll(".problem")) old.remove();
  place.append(box);
  if (!isProblem) setTimeout(() => box.remove(), SHOWN_MILLISECONDS);
}
