// A run in the fragment of the address, which no server is ever sent.

/** @param {object} state @returns {string} */
export function fragment(state) {
  const bytes = new TextEncoder().encode(JSON.stringify(state));
  const text = btoa(Array.from(bytes, (byte) => String.fromCharCode(byte)).join(""));
  return `#run=${text.replaceAll("+", "-").replaceAll("/", "_").replaceAll("=", "")}`;
}

/** @param {string} hash @returns {Record<string, any>|null} null where it holds no run */
export function fromFragment(hash) {
  if (!hash.startsWith("#run=")) return null;
  try {
    const text = atob(hash.slice(5).replaceAll("-", "+").replaceAll("_", "/"));
    const state = JSON.parse(new TextDecoder().decode(Uint8Array.from(text, (c) => c.charCodeAt(0))));
    return state && typeof state === "object" && !Array.isArray(state) ? state : null;
  } catch {
    return null;
  }
}
