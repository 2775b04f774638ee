// A shared worker: one event stream for all tabs of a browser. It ends with the last tab.

import { openStream } from "./events.js";

const ports = new Set();
let stream = null;
let state = null;

function tell(...message) {
  for (const port of ports) port.postMessage(message);
}

function openIfNeeded() {
  if (stream && state !== "ended") return;
  state = null;
  stream = openStream({
    onEvent: (kind, data) => tell("onEvent", kind, data),
    onReset: () => tell("onReset"),
    onState(now) {
      // Events may have been missed while there was no connection.
      if (state === "lost" && now === "open") tell("onReset");
      state = now;
      tell("onState", now);
    },
  });
}

function add(port) {
  ports.add(port);
  openIfNeeded();
  if (state) port.postMessage(["onState", state]);
}

onconnect = ({ ports: [port] }) => {
  port.onmessage = ({ data }) => {
    if (data === "open") add(port);
    if (data !== "close") return;
    ports.delete(port);
    if (!ports.size && stream) {
      stream.close();
      stream = null;
    }
  };
  add(port);
};
