// Frames of a shell's byte streams, as in remuda.wire.shell: a letter, the length in four bytes, data. Pure.

const HEAD = 5;
const LONGEST = 1024 * 1024;

/** Encode a frame. `data`: a Uint8Array. */
export function encodeFrame(kind, data = new Uint8Array()) {
  const frame = new Uint8Array(HEAD + data.length);
  frame[0] = kind.charCodeAt(0);
  new DataView(frame.buffer).setUint32(1, data.length);
  frame.set(data, HEAD);
  return frame;
}

/** The frame that tells the size of the terminal. */
export function sizeFrame(columns, rows) {
  const data = new Uint8Array(4);
  const view = new DataView(data.buffer);
  view.setUint16(0, columns);
  view.setUint16(2, rows);
  return encodeFrame("s", data);
}

/** Splits a byte stream into frames {kind, data}, whatever the sizes of its pieces. */
export class Frames {
  constructor() {
    this._rest = new Uint8Array();
  }

  /** Add bytes; returns the frames that are complete now. Throws an Error for bytes that are no frames. */
  feed(bytes) {
    const all = new Uint8Array(this._rest.length + bytes.length);
    all.set(this._rest);
    all.set(bytes, this._rest.length);
    const frames = [];
    let at = 0;
    while (all.length - at >= HEAD) {
      const kind = String.fromCharCode(all[at]);
      const size = new DataView(all.buffer).getUint32(at + 1);
      if (!"odxcr".includes(kind) || size > LONGEST) throw new Error("The stream of the shell has an invalid frame.");
      if (all.length - at - HEAD < size) break;
      frames.push({ kind, data: all.slice(at + HEAD, at + HEAD + size) });
      at += HEAD + size;
    }
    this._rest = all.slice(at);
    return frames;
  }
}
