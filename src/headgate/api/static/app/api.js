// Requests to the API of the deployment. An error has the problem document's text and hint.
/** Who looks at the page: the name of a user, null for an operator. The service wrote it into the page. */
export const user = document.body.dataset.user ?? null;

export class Refused extends Error {
  constructor(problem) {
    super(problem.detail ?? problem.title ?? "the request failed");
    this.hint = problem.hint;
    this.status = problem.status;
  }
}

async function answer(found) {
  if (found.ok) return found.status === 204 ? null : found.json();
  let problem = { title: found.statusText, status: found.status };
  try {
    problem = await found.json();
  } catch {
    // Not a problem document: the status says all there is.
  }
  throw new Refused(problem);
}

export async function get(path, query) {
  const asked = new URLSearchParams(Object.entries(query ?? {}).filter(([, value]) => value !== null && value !== undefined && value !== ""));
  return answer(await fetch(asked.size ? `${path}?${asked}` : path));
}

export async function send(method, path, body) {
  const headers = { "Content-Type": method === "PATCH" ? "application/merge-patch+json" : "application/json" };
  return answer(await fetch(path, { method, headers, body: body === undefined ? undefined : JSON.stringify(body) }));
}

export const named = (name) => encodeURIComponent(name);

let described = null;
/** Whether this service has an operation: pages show what there is. */
export async function has(path, method = "get") {
  described ??= get("/openapi.json").catch(() => null);
  return Boolean((await described)?.paths?.[path]?.[method]);
}

let latest = { at: 0, asked: null };
/** The overview, asked for once however many parts of the page want it. */
export function overview() {
  if (performance.now() - latest.at > 800 || !latest.asked) {
    latest = { at: performance.now(), asked: get("/api/overview") };
  }
  return latest.asked;
}
