// Starts workers whose scripts are static files of this release. A module of its own: the one place that turns a text
// into the address of a script, which the pages' trusted types otherwise refuse.

// Not in workers: the shared one imports this module, too.
const policy = globalThis.window?.trustedTypes?.createPolicy("remuda-worker", { createScriptURL: (address) => address });

function addressOf(name) {
  const address = new URL(name, import.meta.url).href;
  return policy ? policy.createScriptURL(address) : address;
}

/** Start the module `name` of this folder as a worker. */
export function startWorker(name) {
  return new Worker(addressOf(name), { type: "module" });
}

/** Start the module `name` of this folder as the worker of all tabs, or connect to it. */
export function startSharedWorker(name, title) {
  return new SharedWorker(addressOf(name), { type: "module", name: title });
}
