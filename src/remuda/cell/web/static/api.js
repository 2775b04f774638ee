// Calls of the cell's API with the session of the page.

const csrf = document.querySelector("meta[name=csrf]").content;

/** An answer of the API that refuses a call. `message` is for people, `body` the decoded answer. */
export class RefusedError extends Error {
  constructor(status, message, body = null) {
    super(message);
    this.status = status;
    this.body = body;
  }
}

/** The text of an error answer: {"message": ...} or {"error": ...}, whose values may be objects with lists. */
export function describeError(status, body) {
  if (status === 401) return "You are not signed in any more. Sign in again to go on.";
  let message = body?.message ?? body?.error ?? `The cell answered ${status}.`;
  if (typeof message === "object" && message !== null) {
    message = Object.entries(message).map(([field, texts]) => `${field}: ${[texts].flat().join(" ")}`).join("; ");
  }
  const text = String(message).replace(/^\d{3} (Forbidden|Bad request|Not Found|Conflict)?( - )?/, "");
  return text || { 403: "You may not do this.", 404: "It does not exist any more." }[status] || String(message);
}

/** Call the API and return the response. Raises RefusedError if it is not successful or the cell cannot be reached. */
export async function send(method, path, body = undefined, { signal = undefined, headers = {} } = {}) {
  const isJson = body !== undefined && !(body instanceof FormData) && typeof body !== "string";
  let response;
  try {
    response = await fetch(path, {
      method,
      signal,
      headers: {
        ...(method === "GET" ? {} : { "X-CSRF-Token": csrf }),
        ...(isJson ? { "Content-Type": "application/json" } : {}),
        ...headers,
      },
      body: isJson ? JSON.stringify(body) : body,
    });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new RefusedError(0, "The cell cannot be reached. Check the network, then try again.");
  }
  if (!response.ok) {
    const refusal = await readJson(response);
    throw new RefusedError(response.status, describeError(response.status, refusal), refusal);
  }
  return response;
}

/** Call the API and return its decoded JSON; null if it has no content. */
export async function call(method, path, body = undefined, options = {}) {
  return readJson(await send(method, path, body, options));
}

async function readJson(response) {
  const text = await response.text();
  try {
    return text ? JSON.parse(text) : null;
  } catch {
    return null;
  }
}
