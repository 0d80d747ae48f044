// The OpenAPI document as a page.
import { described } from "./api.js";
import { byId, element } from "./dom.js";

/** A schema in words. @param {any} schema @returns {string} */
function inWords(schema) {
  if (schema.$ref) return "a run, as below";
  if (schema.oneOf) return schema.oneOf.map(inWords).join(", or ");
  if ("const" in schema) return JSON.stringify(schema.const);
  if (schema.enum) return `one of ${schema.enum.join(", ")}`;
  if (schema.type === "array") return `a list: ${inWords(schema.items)}`;
  if (schema.type === "object") return schema.properties ? `{ ${Object.keys(schema.properties).join(", ")} }` : "an object";
  const range = [["minimum", "at least"], ["exclusiveMinimum", "above"], ["maximum", "at most"], ["exclusiveMaximum", "below"]];
  const told = range.filter(([name]) => name in schema).map(([name, says]) => `${says} ${schema[name]}`);
  return [`${schema.type}${schema.maxLength ? ` of at most ${schema.maxLength} characters` : ""}`, ...told].join(", ");
}

/** @param {string} title @param {any} schema @param {boolean} [asked] */
function table(title, schema, asked = true) {
  const rows = Object.entries(schema.properties).map(([name, one]) => {
    const said = [inWords(one), one.default === undefined ? "" : `${JSON.stringify(one.default)} if left out`, one.description ?? ""];
    const must = asked && schema.required.includes(name) ? " (must be given)" : "";
    return element("tr", {}, element("td", {}, element("code", {}, name), must), element("td", {}, said.filter(Boolean).join("; ")));
  });
  const head = element("tr", {}, element("th", { scope: "col" }, title), element("th", { scope: "col" }, "what it is"));
  return element("div", { class: "wide" }, element("table", {}, element("thead", {}, head), element("tbody", {}, ...rows)));
}

/** @param {string} path @param {any} operation @param {string} header */
function section(path, operation, header) {
  const body = operation.requestBody.content["application/json"];
  const parts = [element("h2", { id: operation.operationId }, `POST ${path}`), element("p", {}, operation.summary), table("asked", body.schema)];
  if (body.example) {
    const call = `curl -H '${header}: TOKEN' -d '${JSON.stringify(body.example)}' ${new URL(path, location.href).href}`;
    parts.push(element("h3", {}, "Example"), element("pre", { tabindex: 0, class: "wrapped", "aria-label": `Example of ${path}` }, call));
  }
  parts.push(element("h3", {}, "Answered"), table("answered", operation.responses["200"].content["application/json"].schema, false));
  return element("section", {}, ...parts);
}

async function start() {
  const told = await described();
  const header = told.components.securitySchemes.token.name;
  const operations = Object.entries(told.paths);
  const any = operations[0][1].post.responses;
  byId("api").append(
    element("p", {}, told.info.description, ` Version ${told.info.version}. `, element("code", {}, "api/openapi.json"), " holds the document."),
    ...operations.map(([path, one]) => section(path, one.post, header)),
    element("section", {}, element("h2", { id: "run" }, "A run"), table("run", told.components.schemas.Run)),
    element("section", {}, element("h2", {}, "Where there is no answer"), element("ul", {}, ...Object.keys(any).filter((status) => status !== "200").map((status) => element("li", {}, `${status}: ${any[status].description}`)))),
  );
}

start().catch((error) => {
  byId("trouble").hidden = false;
  byId("trouble").textContent = error.message;
});
