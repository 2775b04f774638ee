// Prints the HTTP calls that gitbeaker can make, one a line ("GET projects/*/jobs"). It calls every method of every
// resource with a requester that only notes the path. Usage: node calls.mjs
import * as core from "@gitbeaker/core";

const PLACEHOLDER = "xx9xx";
const calls = new Set();
let resource;

function noteCall(method) {
  return async (path) => {
    // Resources of projects and groups share their code; the first part of their path is in their address.
    const prefix = new URL(resource.url).pathname.replace(/^\/api\/v4/, "");
    const pattern = `${prefix}/${path}`.split("?")[0].replaceAll(/\/+/g, "/").replace(/^\/|\/$/g, "").replaceAll(/[^/]*(xx9xx|undefined)[^/]*/g, "*");
    calls.add(`${method} ${pattern}`);
    return { body: [], headers: {}, status: 200 };
  };
}

const requester = Object.fromEntries(
  ["get", "post", "put", "patch", "delete"].map((verb) => [verb, noteCall(verb.toUpperCase())]),
);
const scopes = [{}, { projectId: PLACEHOLDER }, { groupId: PLACEHOLDER }, { jobId: PLACEHOLDER }, { ref: PLACEHOLDER }];
for (const Resource of Object.values(core)) {
  if (typeof Resource !== "function" || !Resource.prototype) continue;
  try {
    resource = new Resource({ requesterFn: () => requester, host: "http://none", token: "none" });
  } catch {
    continue;
  }
  for (let type = Resource.prototype; type && type !== Object.prototype; type = Object.getPrototypeOf(type)) {
    for (const name of Object.getOwnPropertyNames(type)) {
      if (name === "constructor" || typeof resource[name] !== "function") continue;
      for (const scope of scopes) {
        const words = Array.from({ length: resource[name].length }, () => PLACEHOLDER);
        try {
          await resource[name](...words, { ...scope, pipelineId: scope.pipelineId });
        } catch {
          // A method that needs other arguments: its call is noted with another scope, or not at all.
        }
      }
    }
  }
}
for (const call of [...calls].sort()) console.log(call);
