// Questions to the server. Each kind has a lane: a later question of a lane supersedes earlier ones.

const token = new URLSearchParams(location.search).get("token") ?? "";
const root = new URL("../", import.meta.url);
const client = Array.from(crypto.getRandomValues(new Uint32Array(3)), (n) => n.toString(36)).join("");

export class Refused extends Error {
  /** @param {number} status @param {string} message */
  constructor(status, message) {
    super(message);
    this.status = status;
  }
}

/** @param {string} path @param {RequestInit} options @returns {Promise<any>} */
async function request(path, options) {
  let response;
  try {
    response = await fetch(new URL(path, root), { ...options, headers: { "x-lastiterate-token": token, "content-type": "application/json" } });
  } catch {
    throw new Refused(0, "The server does not answer. Is `lastiterate explore` still running?");
  }
  const text = await response.text();
  let said;
  try {
    said = JSON.parse(text);
  } catch {
    throw new Refused(response.status, text);
  }
  if (!response.ok) throw new Refused(response.status, said.error ?? text);
  return said;
}

/** What the page offers. */
export const begin = () => request("api/begin", { method: "GET" });

/** @param {string} question @param {object} record @param {string} [lane] @returns {Promise<any>} */
export function ask(question, record, lane = question) {
  const body = JSON.stringify({ ...record, lane: `${client}/${lane}` });
  return request(`api/${question}`, { method: "POST", body });
}

/** @param {string} lane @returns {Promise<{what: string, share: number|null}|null>} */
export async function progress(lane) {
  const body = JSON.stringify({ lane: `${client}/${lane}` });
  return (await request("api/progress", { method: "POST", body })).progress;
}
