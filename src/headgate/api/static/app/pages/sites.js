// Sites and links: as declared, as used, what waits, and rates over time of the one that is looked at.
import { get, has, named, overview, send } from "../api.js";
import { Chart, History } from "../charts.js";
import { h, Table } from "../dom.js";
import { arrow, atLeast, bits, bytes, count, percent, perSecond, seconds } from "../format.js";
import { gauge, loadTone, tag, trouble } from "../parts.js";
import { remember } from "../place.js";

/** What the receiver has seen a link carry; while nothing waits for it, it may carry more. */
const measured = (each) => (each.measured_bytes_per_s == null ? "–" : each.measured_busy ? bits(each.measured_bytes_per_s) : atLeast(bits(each.measured_bytes_per_s)));

const limitOf = (declared, measured) => (declared === null ? `${bits(measured)} measured` : bits(declared));

/** A column with a figure, and under it in small what belongs to it. */
const under = (title, figure, more) => ({
  title,
  text: (each) => `${figure(each)}|${more(each)?.textContent ?? more(each)}`,
  node: (each) => [figure(each), more(each) ? h("small", {}, more(each)) : null].filter(Boolean),
});

export function make({ settings }) {
  let chosen = settings.get("link") ? ["links", settings.get("link")] : settings.get("site") ? ["sites", settings.get("site")] : null;
  let history = null;
  const choose = (kind, name) => {
    chosen = [kind, name];
    remember({ [kind === "sites" ? "site" : "link"]: name });
    look();
    detail.scrollIntoView({ block: "nearest" });
  };
  const pick = (kind) => (each) => h("button", { type: "button", onclick: () => choose(kind, each.name) }, arrow(each.name));
  const sites = new Table("Sites", [
    { title: "Site", key: "name", left: true, node: pick("sites") },
    { title: "State", left: true, text: (each) => (each.age_s === null ? "no report" : each.age_s > 30 ? "silent" : each.level > 0 ? `level ${each.level}` : "well"),
      node: (each) => (each.age_s === null || each.age_s > 30 ? tag("bad", each.age_s === null ? "no report" : "silent") : each.level > 0 ? tag("warn", `reduces, level ${each.level}`) : tag("good", "well")) },
    { title: "Root of", left: true, text: (each) => each.roots.join(", ") || "" },
    { title: "Upload", text: (each) => limitOf(each.upload_bytes_per_s, each.measured_upload_bytes_per_s) },
    { title: "Sends", text: (each) => bits(each.up_bytes_per_s) },
    { title: "Load", text: (each) => percent(each.load), node: (each) => gauge(each.load) },
    { title: "Receives", text: (each) => bits(each.down_bytes_per_s) },
    { title: "Waits", text: (each) => count(each.queued_rows) },
    { title: "In inboxes", text: (each) => bytes(each.inbox_bytes) },
    { title: "Sheds", text: (each) => percent(each.shed) },
    { title: "Processor", text: (each) => percent(each.cpu_share) },
    { title: "Subscriptions", text: (each) => count(each.subscriptions) },
    { title: "Not well", text: (each) => count(each.unwell) },
  ]);
  const links = new Table("Links", [
    { title: "Link", key: "name", left: true, node: pick("links") },
    { title: "Streams", left: true, text: (each) => each.streams.join(", ") },
    { title: "Load", text: (each) => `${percent(each.load)}${each.lost_rows_per_s > 0}`, node: (each) => gauge(each.load, loadTone(each.load, each.lost_rows_per_s)) },
    under("Declared", (each) => bits(each.declared_bytes_per_s ?? each.limit_bytes_per_s), (each) => each.limited_by),
    under("Measured", measured, (each) => each.off && tag("warn", each.off)),
    { title: "May send", text: (each) => bits(each.budget_bytes_per_s) },
    under("Sends", (each) => bits(each.bytes_per_s), (each) => (each.used_bytes_per_s == null ? null : `arrives ${bits(each.used_bytes_per_s)}`)),
    under("Waits", (each) => count(each.queued_rows), (each) => (each.queued_rows ? `oldest ${seconds(each.queued_s)}` : null)),
    { title: "Gives up", text: (each) => perSecond(each.lost_rows_per_s) },
    under("Delay", (each) => seconds(each.latency_s), (each) => `declared ${seconds(each.delay_s)}`),
    { title: "Round trip", text: (each) => seconds(each.round_trip_s) },
    { title: "Sent again", text: (each) => percent(each.resent) },
  ]);
  links.table.classList.add("tight");
  const charts = {
    sites: [new Chart("Bytes on its links", bits), new Chart("Rows that wait", count), new Chart("Processor", percent)],
    links: [new Chart("Bytes", bits), new Chart("Rows that wait, rows given up a second", count), new Chart("Latency and round trip", seconds)],
  };
  const title = h("h2", {}, "Over time");
  const shown = h("div", { class: "grid" });
  const facts = h("p", { class: "faint" }, "Choose a site or a link above.");
  const change = h("div");
  const detail = h("section", { class: "panel" }, title, facts, shown, change);

  function look() {
    history = chosen && new History(...chosen);
    if (!chosen) return;
    title.textContent = arrow(chosen[1]);
    shown.replaceChildren(...charts[chosen[0]].map((each) => h("div", { class: "third" }, each.node)));
    offer();
  }

  // What is declared can be changed here where the service takes such changes.
  async function offer() {
    const [kind, name] = chosen;
    const ofSite = kind === "sites";
    change.replaceChildren();
    if (!(await has(ofSite ? "/api/sites/{name}" : "/api/links/{one}/{other}", "patch")) || chosen[1] !== name) return;
    const value = h("input", { required: true, placeholder: "2 Mbit/s" });
    const said = h("div");
    const [path, key] = ofSite ? [`/api/sites/${named(name)}`, "upload"] : [`/api/links/${name.split("->").map(named).join("/")}`, "capacity"];
    change.replaceChildren(h("form", { class: "filters", onsubmit: async (event) => {
      event.preventDefault();
      try {
        const found = await send("PATCH", path, { [key]: value.value });
        said.replaceChildren(h("p", { role: "status" }, `The ${key} of ${arrow(name)} is ${value.value} since revision ${found.revision}.`));
      } catch (error) {
        said.replaceChildren(trouble(error));
      }
    } }, h("label", {}, `Another ${key}`, value), h("button", {}, "Change")), said);
  }

  const node = h("div", {}, h("h1", {}, "Sites and links"),
    h("div", { class: "grid" },
      h("section", { class: "panel" }, h("h2", {}, "Sites"), sites.node),
      h("section", { class: "panel" }, h("h2", {}, "Links"), links.node,
        h("p", { class: "faint" }, "Measured is what the receiver has seen a link carry: with ≥ nothing has waited for it yet, so that it may carry more. A sender may send the smaller of what is declared and what was measured while rows waited. Round trip and what was sent again are known of links between hosts.")),
      detail));
  look();
  return {
    title: "Sites and links",
    node,
    async refresh() {
      const found = await overview();
      const all = Object.entries(found.sites).map(([name, each]) => ({ name, ...each, load: each.up_bytes_per_s !== null && each.upload_bytes_per_s ? each.up_bytes_per_s / each.upload_bytes_per_s : null }));
      sites.show(all);
      links.show(found.links);
      for (const { table, kind } of [{ table: sites, kind: "sites" }, { table: links, kind: "links" }]) {
        for (const [name, row] of table.rows.nodes) row.classList.toggle("chosen", chosen?.[0] === kind && chosen[1] === name);
      }
      if (!chosen) return;
      const [kind, name] = chosen;
      const now = kind === "sites" ? all.find((each) => each.name === name) : found.links.find((each) => each.name === name);
      if (!now) {
        facts.textContent = `There is no ${kind === "sites" ? "site" : "link"} ${name}.`;
        return;
      }
      const status = (await get(kind === "sites" ? "/api/sites" : "/api/links"));
      const counters = kind === "sites" ? status.sites[name]?.now : status.now[name];
      history.add(found.time_ms, counters ?? {});
      if (kind === "sites") {
        facts.textContent = `Upload ${limitOf(now.upload_bytes_per_s, now.measured_upload_bytes_per_s)}, download ${bits(now.download_bytes_per_s)}; ${count(now.subscriptions)} subscriptions, ${count(now.unwell)} not well; last report ${seconds(now.age_s)} ago.`;
        charts.sites[0].show([["sent", history.rate("upload_bytes")], ["received", history.rate("download_bytes")]], now.upload_bytes_per_s, "upload");
        charts.sites[1].show([["rows", history.level("queued_rows")]]);
        charts.sites[2].show([["of one core", history.rate("cpu_s")]]);
      } else {
        facts.textContent = `${now.streams.join(", ")}${now.second?.length ? ` (second path of ${now.second.join(", ")})` : ""}; declared ${bits(now.declared_bytes_per_s ?? now.limit_bytes_per_s)}${now.limited_by ? ` (${now.limited_by})` : ""}, measured ${measured(now)}, may send ${bits(now.budget_bytes_per_s)}${now.off ? `: ${now.off}` : ""}; ${count(now.reduced)} rows given up since the start.`;
        charts.links[0].show([["sent", history.rate("bytes")], ["measured", history.level("measured_bytes_per_s")]], now.limited_by === "capacity" ? now.limit_bytes_per_s : null, "capacity");
        charts.links[1].show([["wait", history.level("queued_rows")], ["given up a second", history.rate("reduced")]]);
        const trips = history.level("round_trip_s");
        charts.links[2].show([["latency", history.level("latency_s")], ...(trips.some(([, value]) => value !== null) ? [["round trip", trips]] : [])], now.delay_s, "declared");
      }
    },
  };
}
