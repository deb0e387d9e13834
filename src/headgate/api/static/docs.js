"use strict";
// Lists every operation of the OpenAPI document, and lets the reader try it.
function element(name, text, className) {
  const found = document.createElement(name);
  if (text !== undefined) found.textContent = text;
  if (className) found.className = className;
  return found;
}

function resolve(schema, all, depth = 0) {
  if (schema === null || typeof schema !== "object" || depth > 6) return schema;
  if (Array.isArray(schema)) return schema.map((each) => resolve(each, all, depth + 1));
  if (schema.$ref) return resolve(all[schema.$ref.split("/").pop()] ?? {}, all, depth + 1);
  return Object.fromEntries(Object.entries(schema).map(([key, value]) => [key, resolve(value, all, depth + 1)]));
}

function operation(path, method, about, all) {
  const block = element("details");
  const title = element("summary");
  title.append(element("span", method.toUpperCase(), "method"), element("code", path), ` ${about.summary ?? ""}`);
  block.append(title);
  if (about.description) block.append(element("p", about.description));
  const form = element("form");
  const inputs = (about.parameters ?? []).map((each) => {
    const label = element("label", `${each.name} (${each.in}${each.required ? ", required" : ""}) `);
    const input = element("input");
    label.title = each.description ?? "";
    label.append(input);
    const line = element("p");
    line.append(label);
    form.append(line);
    return [each, input];
  });
  let body = null;
  const content = Object.entries(about.requestBody?.content ?? {})[0];
  if (content) {
    const shape = element("details");
    shape.append(element("summary", `body: ${content[0]}`), element("pre", JSON.stringify(resolve(content[1].schema, all), null, 1)));
    body = element("textarea", "{}");
    body.setAttribute("aria-label", "body");
    form.append(shape, body);
  }
  const answer = element("pre");
  answer.hidden = true;
  form.append(element("button", "Send"), answer);
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    let target = path;
    const query = new URLSearchParams();
    const headers = {};
    for (const [each, input] of inputs) {
      if (each.in === "path") target = target.replace(`{${each.name}}`, encodeURIComponent(input.value));
      else if (input.value && each.in === "query") query.set(each.name, input.value);
      else if (input.value && each.in === "header") headers[each.name] = input.value;
    }
    if (body) headers["Content-Type"] = content[0];
    const found = await fetch(query.size ? `${target}?${query}` : target, { method: method.toUpperCase(), headers, body: body?.value });
    const text = await found.text();
    let shown = text;
    try { shown = JSON.stringify(JSON.parse(text), null, 1); } catch { /* not JSON: shown as it is */ }
    answer.hidden = false;
    answer.textContent = `${found.status} ${found.statusText}\n${shown.slice(0, 20000)}`;
  });
  block.append(form);
  return block;
}

async function read() {
  const found = await (await fetch("/openapi.json")).json();
  const all = found.components?.schemas ?? {};
  const groups = new Map();
  for (const [path, methods] of Object.entries(found.paths)) {
    for (const [method, about] of Object.entries(methods)) {
      const tag = about.tags?.[0] ?? "other";
      if (!groups.has(tag)) groups.set(tag, element("section"));
      groups.get(tag).append(operation(path, method, about, all));
    }
  }
  const main = document.getElementById("operations");
  main.replaceChildren(element("p", found.info.description));
  for (const [tag, section] of groups) {
    section.prepend(element("h2", tag));
    main.append(section);
  }
}
read();
