// Streams: what came in, what admission control shed, what became dead letters, and the parts of micro-batches.
import { get, named, overview } from "../api.js";
import { Chart, History } from "../charts.js";
import { h, replace, Table, text } from "../dom.js";
import { clock, count, percent, perSecond, seconds, several } from "../format.js";
import { tag, trouble } from "../parts.js";
import { remember } from "../place.js";

const PAGE = 20;

export function make({ settings }) {
  let chosen = settings.get("stream");
  let history = null;
  let offset = 0;
  const table = new Table("Streams", [
    { title: "Stream", key: "name", left: true, node: (each) => h("button", { type: "button", onclick: () => choose(each.name) }, each.name) },
    { title: "State", key: "state", left: true, node: (each) => tag(each.state === "running" ? "good" : each.state === "failed" ? "bad" : "plain", each.state === "-" ? "no job" : each.state) },
    { title: "Root", key: "root", left: true },
    { title: "Rows in", text: (each) => count(each.rows_in) },
    { title: "a second", text: (each) => perSecond(each.rows_per_s) },
    { title: "declared", text: (each) => perSecond(each.declared_rows_per_s) },
    { title: "Evaluated", text: (each) => count(each.evaluated) },
    { title: "Shed", text: (each) => count(each.shed) },
    { title: "Dead letters", text: (each) => count(each.dead) },
    { title: "Unaccounted", text: (each) => count(each.difference) },
    { title: "Admission", left: true, text: (each) => each.admission ?? "" },
  ]);
  const rows = new Chart("Rows a second", perSecond);
  const lost = new Chart("Dead letters and rows shed, a second", perSecond);
  const title = h("h2");
  const facts = h("dl", { class: "pairs" });
  const columns = h("div");
  const letters = h("div");
  const more = h("div", { class: "row" });
  const detail = h("section", { class: "panel", hidden: true }, title, h("div", { class: "grid" },
    h("div", { class: "half" }, rows.node), h("div", { class: "half" }, lost.node),
    h("div", { class: "half" }, h("h3", {}, "Admission and micro-batches"), facts), h("div", { class: "half" }, h("h3", {}, "Columns"), columns)));
  const dead = h("section", { class: "panel", hidden: true }, h("h2", {}, "Dead letters"), letters, more);

  function choose(name) {
    chosen = name;
    offset = 0;
    history = new History("streams", name);
    remember({ stream: name });
    detail.hidden = dead.hidden = false;
    text(title, name);
    describe();
    read();
  }

  async function describe() {
    const found = await get(`/api/streams/${named(chosen)}`);
    const list = h("ul", { class: "list" }, found.schema.map((each) => h("li", {}, h("code", {}, each.name), ` ${each.type}${each.unit ? `, ${each.unit}` : ""}${found.key.includes(each.name) ? ", key" : ""}${found.event_time === each.name ? ", event time" : ""}`)));
    columns.replaceChildren(list, h("p", { class: "faint" }, `Source: ${found.source}.${found.grid ? " Gridded." : ""}`));
  }

  async function read() {
    try {
      const found = await get(`/api/streams/${named(chosen)}/dead`, { limit: PAGE, after: offset });
      letters.replaceChildren(found.total ? h("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": "Dead letters" }, h("table", {}, h("caption", { class: "sr" }, "Dead letters"),
        h("thead", {}, h("tr", {}, h("th", { scope: "col", class: "text" }, "Reason"), h("th", { scope: "col", class: "text" }, "Row"))),
        h("tbody", {}, found.letters.map((each) => h("tr", {}, h("td", { class: "text" }, each.reason ?? ""), h("td", { class: "text wrap" }, h("code", {}, JSON.stringify(each.row ?? each.raw ?? each)))))))) : h("p", { class: "faint" }, "None that the root log still holds."));
      more.replaceChildren(...(found.total ? [h("span", { class: "faint" }, `${count(offset + 1)} to ${count(Math.min(offset + PAGE, found.total))} of ${several(found.total, "letter")}, oldest first`),
        h("button", { type: "button", disabled: offset === 0, onclick: () => ((offset = Math.max(0, offset - PAGE)), read()) }, "Back"),
        h("button", { type: "button", disabled: found.next === null, onclick: () => ((offset += PAGE), read()) }, "Next")] : []));
    } catch (error) {
      letters.replaceChildren(trouble(error));
    }
  }

  const node = h("div", {}, h("h1", {}, "Streams"), h("p", { class: "faint" }, "Rows in = dead letters + shed at admission + evaluated, counted where it happens."),
    h("div", { class: "grid" }, h("section", { class: "panel" }, h("h2", {}, "All streams"), table.node), detail, dead));
  return {
    title: "Streams",
    node,
    async refresh() {
      const found = await overview();
      const all = Object.entries(found.streams).map(([name, each]) => ({ name, ...each }));
      table.show(all);
      if (!chosen && all.length) choose(all.find((each) => each.dead)?.name ?? all[0].name);
      else if (chosen && !history) choose(chosen);
      for (const [name, row] of table.rows.nodes) row.classList.toggle("chosen", name === chosen);
      const now = found.streams[chosen];
      if (!now) return;
      history.add(found.time_ms, now);
      rows.show([["in", history.rate("rows_in")], ["evaluated", history.rate("evaluated")]]);
      lost.show([["dead", history.rate("dead")], ["shed", history.rate("shed")]]);
      const job = now.job ?? {};
      const terms = [
        ["Method", now.admission ?? "–"],
        ["Shed", `${count(now.shed)} rows, ${percent(now.rows_in ? now.shed / now.rows_in : null)} of all`],
        ["Last micro-batch", job.batch_s == null ? "none reported" : `${count(job.rows)} rows in ${seconds(job.batch_s)}, at ${clock(job.time_ms)}`],
        ["Matching", seconds(job.match_s)],
        ["Waits at the source", now.waiting ? count(now.waiting.rows ?? null) : "–"],
        ["Senders gave up", Object.entries(now.unsent ?? {}).map(([why, many]) => `${why} ${count(many)}`).join(", ") || "nothing"],
        ...Object.entries(job.stages ?? {}).map(([stage, spent]) => [`Stage ${stage}`, seconds(spent)]),
      ];
      replace(facts, JSON.stringify(terms), () => terms.flatMap(([term, value]) => [h("dt", {}, term), h("dd", {}, value)]));
    },
  };
}
