// Changes one element into another with as few changes as possible, so that focus, selection, scroll positions and
// opened details stay. Children are matched by id or data-key, else by position.

const KEPT_ATTRIBUTES = new Set(["open"]);

function keyOf(node) {
  return node.nodeType === Node.ELEMENT_NODE ? node.id || node.dataset?.key || "" : "";
}

function isSameKind(old, fresh) {
  return old.nodeType === fresh.nodeType && old.nodeName === fresh.nodeName && keyOf(old) === keyOf(fresh);
}

/** Change `old` into `fresh`, which has the same kind. An element with data-keep stays as it is. */
export function morph(old, fresh) {
  if (old.nodeType !== Node.ELEMENT_NODE) {
    if (old.nodeValue !== fresh.nodeValue) old.nodeValue = fresh.nodeValue;
    return;
  }
  if (old.hasAttribute("data-keep") || old.isEqualNode(fresh)) return;
  for (const { name, value } of fresh.attributes) {
    if (!KEPT_ATTRIBUTES.has(name) && old.getAttribute(name) !== value) old.setAttribute(name, value);
  }
  for (const { name } of [...old.attributes]) {
    if (!KEPT_ATTRIBUTES.has(name) && !fresh.hasAttribute(name)) old.removeAttribute(name);
  }
  // What is being typed stays.
  if (old.matches("textarea, select") || (old.matches("input") && old === document.activeElement)) return;
  morphChildren(old, fresh);
}

function morphChildren(old, fresh) {
  const keyed = new Map();
  for (const child of old.childNodes) if (keyOf(child)) keyed.set(keyOf(child), child);
  let place = old.firstChild;
  for (const wanted of [...fresh.childNodes]) {
    const key = keyOf(wanted);
    const match = key ? keyed.get(key) : place;
    if (match && isSameKind(match, wanted)) {
      if (match === place) place = place.nextSibling;
      else old.insertBefore(match, place);
      morph(match, wanted);
    } else {
      old.insertBefore(document.importNode(wanted, true), place);
    }
  }
  while (place) {
    const next = place.nextSibling;
    place.remove();
    place = next;
  }
}
