// Small helpers for the page. Text is always set as text, never as markup.

const SVG = "http://www.w3.org/2000/svg";

/** @param {string} id @returns {HTMLElement} */
export function byId(id) {
  const found = document.getElementById(id);
  if (!found) throw new Error(`no element ${id}`);
  return found;
}

/**
 * An element with attributes and children; strings become text.
 * @param {string} name @param {Record<string, string|number|boolean>} [attributes]
 * @param {...(Node|string)} children @returns {HTMLElement}
 */
export function element(name, attributes = {}, ...children) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) {
    if (value === true) made.setAttribute(key, "");
    else if (value !== false) made.setAttribute(key, String(value));
  }
  made.append(...children);
  return made;
}

/**
 * @param {string} name @param {Record<string, string|number>} [attributes]
 * @param {...(Node|string)} children @returns {SVGElement}
 */
export function drawn(name, attributes = {}, ...children) {
  const made = /** @type {SVGElement} */ (document.createElementNS(SVG, name));
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, String(value));
  made.append(...children);
  return made;
}

/** @param {string} text @param {string} name @param {string} kind */
export function save(text, name, kind) {
  const address = URL.createObjectURL(new Blob([text], { type: kind }));
  const link = element("a", { href: address, download: name });
  document.body.append(link);
  link.click();
  link.remove();
  setTimeout(() => URL.revokeObjectURL(address), 1000);
}
