// One look: is everything well, who does not get what they asked for, and which link is the reason.
import { overview } from "../api.js";
import { h, Keyed, replace, text } from "../dom.js";
import { arrow, bits, clock, count, percent, perSecond, quality, seconds, several } from "../format.js";
import { Graph } from "../graph.js";
import { Figures, gauge, loadTone, nameLink, stateTag, tag } from "../parts.js";

function verdict(found) {
  const wrong = found.findings.filter((each) => each.wrong);
  const { difference, below, less, waiting } = found.states;
  const reasons = new Map();
  for (const each of found.worst) if (each.reason?.link) reasons.set(each.reason.link, (reasons.get(each.reason.link) ?? 0) + 1);
  const [link] = [...reasons].sort((a, b) => b[1] - a[1])[0] ?? [];
  const because = link ? ` The link ${arrow(link)} is the reason for ${several(reasons.get(link), "of them", "of them")}.` : "";
  if (found.service.state !== "running") return ["bad", `The service is ${found.service.state}.`, "Rows are neither taken in nor delivered."];
  if (wrong.length) return ["bad", `${several(wrong.length, "thing is", "things are")} wrong.`, wrong[0].message];
  if (difference) return ["bad", "Rows are unaccounted for.", `${several(difference, "subscription")} cannot account for every row.`];
  if (below) return ["bad", `${several(below, "subscription does", "subscriptions do")} not get what they contracted.`, `Every row is accounted for.${because}`];
  if (less) return ["warn", `${several(less, "subscription gets", "subscriptions get")} less than they asked for.`, `Contracts are met, and every row is accounted for.${because}`];
  if (found.states.unmeasured === found.subscriptions && found.subscriptions) return ["", "Nothing has been measured yet.", "Every row is accounted for so far."];
  if (waiting) return ["warn", "Everybody gets what they asked for.", `${several(waiting, "subscription is", "subscriptions are")} not being read.`];
  return ["good", "Everybody gets what they asked for.", "Every row is accounted for."];
}

export function make() {
  const dot = h("span", { class: "dot" });
  const [said, more] = [h("strong"), h("span", { class: "faint" })];
  const banner = h("section", { class: "panel verdict", "aria-live": "polite" }, dot, h("p", {}, said, h("br"), more));
  const figures = new Figures(["Subscriptions", "Contracts met", "Rows in", "Sent on links", "Quality of the plan", "Dead letters, shed"]);
  const graph = new Graph();
  const worst = h("ul", { class: "list" });
  const links = h("ul", { class: "list" });
  const findings = h("ul", { class: "list" });
  const alerts = h("ul", { class: "list" });
  const alertsPanel = h("section", { class: "panel", hidden: true }, h("h2", {}, "Alerts"), alerts);
  const findingsPanel = h("section", { class: "panel", hidden: true }, h("h2", {}, "Findings"), findings);
  const people = new Keyed(worst, () => h("li"), (node, each) => {
    replace(node, `${each.name}|${each.state}|${quality(each.quality)}|${each.drop}|${each.reason?.text}`, () => [
      h("div", { class: "row" }, nameLink(each.name), stateTag(each.state)),
      h("div", { class: "faint" }, `quality ${quality(each.quality)}${each.at_least === null ? "" : ` of ${quality(each.at_least)}`} · drop ${percent(each.drop)} · delay ${seconds(each.delay_s)} · at ${each.site}`),
      each.reason ? h("div", {}, each.reason.text) : null,
    ].filter(Boolean));
  });
  const loads = new Keyed(links, () => h("li"), (node, each) => {
    replace(node, `${percent(each.load)}|${bits(each.bytes_per_s)}|${perSecond(each.lost_rows_per_s)}|${each.queued_rows}|${each.off}`, () => [
      h("div", { class: "row" }, h("a", { href: `#/sites?link=${encodeURIComponent(each.name)}` }, arrow(each.name)), gauge(each.load, loadTone(each.load, each.lost_rows_per_s))),
      h("div", { class: "faint" }, `${bits(each.bytes_per_s)}; ${each.limited_by === "capacity" ? `capacity ${bits(each.limit_bytes_per_s)}` : `${each.limited_by ?? "no limit"}${each.limit_bytes_per_s ? ` ${bits(each.limit_bytes_per_s)}` : ""}`}${each.lost_rows_per_s ? ` · gives up ${perSecond(each.lost_rows_per_s)}` : ""}${each.queued_rows ? ` · ${several(each.queued_rows, "row")} wait` : ""}`),
      each.off ? h("div", {}, tag("warn", each.off), ` measured ${bits(each.measured_bytes_per_s)}`) : null,
    ].filter(Boolean));
  });
  const nobody = h("p", { class: "faint" }, "Nobody: everybody gets what they asked for.");
  const node = h("div", {},
    h("h1", { class: "sr" }, "Overview"), banner, figures.node,
    h("div", { class: "grid" },
      h("section", { class: "panel wide" }, h("h2", {}, "Delivery"), graph.node),
      h("div", { class: "narrow grid" },
        h("section", { class: "panel" }, h("h2", {}, "Who does not get what they asked for"), worst, nobody, h("p", {}, h("a", { href: "#/subscriptions?state=unwell" }, "All of them"))),
        h("section", { class: "panel" }, h("h2", {}, "Fullest links"), links, h("p", {}, h("a", { href: "#/sites" }, "All sites and links"))),
        alertsPanel, findingsPanel)));
  return {
    title: "Overview",
    node,
    async refresh() {
      const found = await overview();
      const [tone, main, detail] = verdict(found);
      banner.className = `panel verdict ${tone}`;
      dot.className = `dot ${tone}`;
      text(said, main);
      text(more, detail);
      const streams = Object.values(found.streams);
      const known = (values) => (values.some((each) => each !== null) ? values.reduce((a, b) => a + (b ?? 0), 0) : null);
      figures.show([
        [count(found.subscriptions), found.states.unmeasured ? `${count(found.states.unmeasured)} not measured` : ""],
        found.contracts ? [`${count(found.contracts - found.contracts_below)} of ${count(found.contracts)}`] : ["–", "no contracts"],
        [perSecond(known(streams.map((each) => each.rows_per_s))), several(streams.length, "stream")],
        [bits(known(found.links.map((each) => each.bytes_per_s))), several(found.links.length, "link")],
        [quality(found.planner.quality), found.planner.quality_reachable ? `${quality(found.planner.quality_reachable)} reachable` : ""],
        [`${count(streams.reduce((a, each) => a + each.dead, 0))}, ${count(streams.reduce((a, each) => a + each.shed, 0))}`],
      ]);
      graph.show(found);
      people.show(found.worst.slice(0, 6), (each) => each.name);
      nobody.hidden = found.worst.length > 0;
      const fullest = found.links.filter((each) => each.planned || each.second.length).sort((a, b) => Number(b.lost_rows_per_s > 0) - Number(a.lost_rows_per_s > 0) || (b.load ?? -1) - (a.load ?? -1));
      loads.show(fullest.slice(0, 5), (each) => each.name);
      alertsPanel.hidden = !found.alerts.length;
      replace(alerts, JSON.stringify(found.alerts), () => found.alerts.map((each) => h("li", {},
        h("div", { class: "row" }, h("strong", {}, each.subject), each.cleared_ms === null ? tag("bad", `since ${clock(each.since_ms)}`) : tag("plain", `over since ${clock(each.cleared_ms)}`)), h("div", {}, each.text))));
      findingsPanel.hidden = !found.findings.length;
      replace(findings, JSON.stringify(found.findings), () => found.findings.map((each) => h("li", {}, h("strong", {}, each.subject), `: ${each.message}`, each.hint ? h("div", { class: "faint" }, each.hint) : null)));
    },
  };
}
