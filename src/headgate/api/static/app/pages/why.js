// What became of a row: asked by its number, its key or a filter, answered in one paragraph with the path it took.
import { get, named } from "../api.js";
import { h } from "../dom.js";
import { clock, several } from "../format.js";
import { tag, trouble } from "../parts.js";
import { remember } from "../place.js";

const TONES = { delivered: "good", settled: "good", "in-flight": "plain", waiting: "plain", unread: "plain", "going-up": "plain", reduced: "warn", expired: "warn", withheld: "warn", dead: "bad", unfound: "bad", lost: "bad", gap: "bad", forgotten: "plain" };
const SEEN = new Set(["dead", "unread", "going-up"]);

export async function make({ settings }) {
  const names = h("datalist", { id: "names" });
  const subscription = h("input", { list: "names", required: true, value: settings.get("subscription") ?? "", autocomplete: "off" });
  const by = h("select", {}, h("option", { value: "where" }, "a filter over the stream"), h("option", { value: "key" }, "the values of its key"), h("option", { value: "seq" }, "its sequence number"));
  by.value = settings.get("by") ?? "where";
  const value = h("input", { class: "code", required: true, value: settings.get("value") ?? "", placeholder: "vehicle = 'v042' and speed > 20" });
  const answer = h("div", { "aria-live": "polite" });
  const hints = { where: "vehicle = 'v042' and speed > 20", key: "v042", seq: "4711" };
  by.addEventListener("change", () => (value.placeholder = hints[by.value]));

  subscription.addEventListener("input", async () => {
    const found = await get("/api/subscriptions", { search: subscription.value, limit: 12 });
    names.replaceChildren(...found.subscriptions.map((each) => h("option", { value: each.name })));
  });

  async function ask(event) {
    event?.preventDefault();
    if (!subscription.value || !value.value) return;
    remember({ subscription: subscription.value, by: by.value, value: value.value });
    answer.replaceChildren(h("p", { class: "faint" }, "Reading the logs…"));
    try {
      const found = await get(`/api/subscriptions/${named(subscription.value)}/why`, { [by.value]: value.value });
      answer.replaceChildren(h("section", { class: "panel" },
        h("div", { class: "row" }, h("h2", {}, found.seq === null ? (SEEN.has(found.fate) ? `A row of ${found.stream}` : "No such row") : `Row ${found.seq.toLocaleString("en")} of ${found.stream}`), tag(TONES[found.fate] ?? "warn", found.fate)),
        h("p", { class: "paragraph" }, found.text),
        found.path?.length ? h("div", {}, h("h3", {}, "Its path"), h("ol", { class: "path" }, found.path.map((stop, place) => h("li", {}, h("span", { class: "stop" }, place === found.path.length - 1 ? `inbox at ${stop.site}` : stop.from ? `${stop.from} → ${stop.site}` : stop.site, h("br"), h("span", { class: "faint" }, `${stop.state.replace("-", " ")}${stop.time_ms ? ` at ${clock(stop.time_ms)}` : ""}`)))))) : null,
        found.row ? h("details", { open: true }, h("summary", {}, several(Object.keys(found.row).length, "value")), h("dl", { class: "pairs" }, Object.entries(found.row).flatMap(([key, each]) => [h("dt", {}, h("code", {}, key)), h("dd", {}, JSON.stringify(each))]))) : null,
        h("details", {}, h("summary", {}, "What it was told from"), h("pre", {}, JSON.stringify(found, null, 1)))));
    } catch (error) {
      answer.replaceChildren(trouble(error));
    }
  }

  const node = h("div", {}, h("h1", {}, "Why did a row not come?"),
    h("form", { class: "panel filters", onsubmit: ask },
      h("label", {}, "Subscription", subscription, names), h("label", {}, "The row is named by", by), h("label", { class: "grow" }, "Which row", value), h("button", { class: "main" }, "Ask")),
    answer,
    h("p", { class: "faint" }, "The newest row that fits is looked for, in what was committed, in dead letters, and in what was published and not read yet, at the sites too. It reads the logs and changes nothing."));
  if (settings.get("value")) ask();
  return { title: "Why", node, every: 60_000 };
}
