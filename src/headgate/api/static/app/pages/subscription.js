// One subscription: its path through the tree, what it attains, its ledger over time, and the rows themselves.
import { get, has, named, overview, send, user } from "../api.js";
import { Chart, History } from "../charts.js";
import { h, replace, text } from "../dom.js";
import { FieldPicture } from "../field.js";
import { bits, bytes, count, percent, perSecond, quality, seconds, several } from "../format.js";
import { Figures, loadTone, nameLink, stateTag, trouble } from "../parts.js";
import { Sample } from "../sample.js";

/** The share of the stream's rows that it matches; by few rows that were drawn at random, until the planner has measured it. */
function matchedText({ matched_share: share, matched_sample: sample }) {
  if (share === null) return "not measured yet";
  const by = sample ? ` (${percent(sample.at_least)} to ${percent(sample.at_most)}, by ${several(sample.rows, "row")} drawn at random)` : "";
  return `${percent(share)} of the stream's rows${by}`;
}

/** A subscription to a stream of several roots has a part at each. */
function parts(found) {
  return {
    title: found.name,
    node: h("div", {}, h("h1", {}, found.name), h("section", { class: "panel" }, h("p", {}, "It has a part at each root of its stream:"), h("ul", {}, found.members.map((each) => h("li", {}, nameLink(each.name)))))),
  };
}

export async function make({ subject: name }) {
  const found = await get(`/api/subscriptions/${named(name)}`);
  if (found.members) return parts(found);
  const { subscription } = found;
  const stream = await get(`/api/streams/${named(subscription.stream)}`);
  const history = new History("subscriptions", name);
  const state = h("span");
  const figures = new Figures(["Quality", "Contract", "Drop", "Delay since commit", "Delay since event", "Ladder level", "In flight"]);
  const path = h("ol", { class: "path", "aria-label": "Path" });
  const second = h("ol", { class: "path", "aria-label": "Second path" });
  const about = h("p", { class: "faint" });
  const secondPath = h("div", { hidden: true }, h("h3", {}, "Second path"), second, about);
  const reason = h("p");
  const estimated = h("p", { class: "faint" });
  const ledger = h("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": "Ledger" });
  const charts = {
    rates: new Chart("Rows a second", perSecond),
    delays: new Chart("Delay, mean between samples", seconds),
    terms: new Chart("Rows in flight and waiting in queues", count),
    quality: new Chart("Attained quality", quality),
    level: new Chart("Ladder level", count),
    total: new Chart("Ledger: rows since the start", count),
  };
  const picture = stream.grid?.x?.column ? new FieldPicture(stream.grid) : null;
  const sample = new Sample(name, (rows) => picture?.add(rows));
  if (!picture) sample.given.className = "panel";
  const ended = h("div");
  let gone = false;

  async function end() {
    if (!confirm(`End the subscription ${name}? What waits for it is given up.`)) return;
    gone = true;
    try {
      await send("DELETE", `/api/subscriptions/${named(name)}`);
      location.hash = "#/subscriptions";
    } catch (error) {
      gone = false;
      ended.replaceChildren(trouble(error));
    }
  }

  // Where the service can pause subscriptions.
  const pause = h("button", { type: "button", hidden: true });
  let paused = Boolean(subscription.paused);
  const showPause = () => text(pause, paused ? "Resume" : "Pause");
  pause.addEventListener("click", async () => {
    try {
      await send("POST", `/api/subscriptions/${named(name)}/${paused ? "resume" : "pause"}`);
      paused = !paused;
      showPause();
    } catch (error) {
      ended.replaceChildren(trouble(error));
    }
  });
  has("/api/subscriptions/{name}/pause", "post").then((there) => (pause.hidden = !there));
  showPause();

  const terms = [
    ["Stream", subscription.stream],
    ["Site", subscription.site],
    // Without a filter it names what its owner may no longer see, and gets nothing.
    ["Filter", found.filter ? (found.filter.where.replace(/^TRUE$/, "") || "everything") : `${subscription.where} (it names what you may not see any more, so nothing comes)`],
    found.filter?.simplified && found.filter.simplified !== found.filter.where ? ["Simplified", found.filter.simplified] : null,
    subscription.resolution ? ["Resolution", JSON.stringify(subscription.resolution)] : null,
    subscription.region ? ["Region", JSON.stringify(subscription.region)] : null,
    ["Columns", subscription.select?.join(", ") ?? "all"],
    subscription.context ? ["Context", JSON.stringify(subscription.context)] : null,
    ["Matches", matchedText(found)],
    ["Shared with", found.sharing > 1 ? `${several(found.sharing - 1, "other")} of the same class (${found.class})` : "nobody"],
    ["Tolerates", `drop ${percent(subscription.quality?.drop)}, delay ${subscription.quality?.delay ?? "–"}`],
    subscription.policy ? ["Policy", JSON.stringify(subscription.policy)] : null,
    found.granted ? ["The plan grants", `quality ${quality(found.granted.quality)}, drop ${percent(found.granted.drop)}, delay ${seconds(found.granted.delay_s)}${found.granted.binds ? `; ${found.granted.binds} binds` : ""}`] : null,
  ].filter(Boolean);

  const node = h("div", {},
    h("div", { class: "head" }, h("h1", {}, name), state,
      h("span", { class: "row end" }, h("a", { class: "button", href: `#/why?subscription=${named(name)}` }, "Why is a row missing?"), h("a", { class: "button", href: `#/new?copy=${named(name)}` }, "Change or copy"), pause, h("button", { type: "button", onclick: end }, "End"))),
    ended, figures.node,
    h("div", { class: "grid" },
      h("section", { class: "panel half" }, h("h2", {}, "Path through the tree"), path, secondPath, reason, h("h2", {}, "Ledger"), ledger, estimated),
      h("section", { class: "panel half" }, h("h2", {}, "As it was asked for"), h("dl", { class: "pairs" }, terms.flatMap(([term, value]) => [h("dt", {}, term), h("dd", {}, value)]))),
      ...Object.values(charts).map((each) => h("section", { class: "panel third" }, each.node)),
      picture?.node, sample.given, sample.node));

  function showPaths(all, paths) {
    const { parents } = all.streams[subscription.stream] ?? { parents: {} };
    const stops = [subscription.site];
    while (stops[0] in parents && stops.length < 99) stops.unshift(parents[stops[0]]);
    drawPath(path, stops, all);
    secondPath.hidden = !paths;
    if (!paths) return;
    const other = paths.ways[1];
    second.hidden = !other;
    if (other) drawPath(second, other, all);
    const shared = paths.shared.length ? ` It shares ${paths.shared.join(", ")} with the first.` : "";
    text(about, other ? `${paths.in_use > 1 ? "Each row comes over both, and is delivered once" : "It is not in use now"}: ${bytes(paths.second_bytes)} over its last link since the start.${shared}` : "It asks for two paths and has one: no site above its parent can serve it too.");
  }

  function drawPath(path, stops, all) {
    const hops = stops.slice(1).map((to, place) => all.links.find((each) => each.name === `${stops[place]}->${to}`) ?? { name: `${stops[place]}->${to}` });
    const key = JSON.stringify(hops.map((each) => [each.name, bits(each.bytes_per_s), percent(each.load), each.queued_rows, perSecond(each.lost_rows_per_s)]));
    replace(path, key, () => stops.flatMap((stop, place) => [
      h("li", {}, user === null ? h("a", { class: "stop", href: `#/sites?site=${named(stop)}` }, stop) : h("span", { class: "stop" }, stop)),
      place < hops.length ? h("li", { class: `hop ${loadTone(hops[place].load, hops[place].lost_rows_per_s)}` },
        h("span", {}, `${bits(hops[place].bytes_per_s)}, ${percent(hops[place].load)}`, h("br"), `${seconds(hops[place].latency_s)}${hops[place].queued_rows ? `, ${count(hops[place].queued_rows)} wait` : ""}`)) : h("li", { class: "hop" }, "inbox"),
    ]));
  }

  function showLedger(now) {
    const by = Object.entries(now.reduced_by ?? {}).map(([why, many]) => `${why} ${count(many)}`).join(", ");
    const lines = [["Matched", now.matched, "by the root"], ["Delivered", now.delivered, "and acknowledged"], ["Reduced", now.reduced, by || "by policies"], ["Expired", now.expired, "kept too long"], ["In flight", now.in_flight, "on the way, or not acknowledged"], ["Unaccounted for", now.difference, "what is left of the sum"]];
    const missed = now.errors?.false_negatives;
    const wrong = now.errors?.false_positives;
    const about = (each) => `${count(Math.round(each.estimate))} (95 %: ${count(Math.round(each.low))} to ${count(Math.round(each.high))})`;
    text(estimated, !missed ? "" : `By samples, about ${about(missed)} rows that match were missed before matching, and ${about(wrong)} match wrongly.`);
    replace(ledger, JSON.stringify(lines), () => h("table", {}, h("caption", { class: "sr" }, "Ledger"), h("tbody", {}, lines.map(([term, value, note]) => h("tr", {}, h("th", { scope: "row", class: "text" }, term), h("td", {}, count(value)), h("td", { class: "text faint" }, note))))));
  }

  return {
    title: name,
    node,
    async refresh() {
      if (gone) return;
      const [all, fresh, list] = await Promise.all([overview(), get(`/api/subscriptions/${named(name)}`), get("/api/attainment", { search: name, limit: 1000, sort: "name" })]);
      const now = fresh.now;
      const attained = list.rows.find((each) => each.name === name);
      if (!now || !attained) return;
      replace(state, attained.state, () => stateTag(attained.state));
      figures.show([
        [quality(attained.quality), attained.quality === null ? "not measured yet" : ""],
        quality(attained.at_least),
        percent(attained.drop),
        [seconds(now.commit_delay_ms?.p50 == null ? null : now.commit_delay_ms.p50 / 1000), `p99 ${seconds(now.commit_delay_ms?.p99 == null ? null : now.commit_delay_ms.p99 / 1000)}`],
        [seconds(now.event_delay_ms?.p50 == null ? null : now.event_delay_ms.p50 / 1000), `p99 ${seconds(now.event_delay_ms?.p99 == null ? null : now.event_delay_ms.p99 / 1000)}`],
        count(now.level),
        [count(now.in_flight), now.queued_rows ? `${count(now.queued_rows)} in queues` : ""],
      ]);
      text(reason, attained.reason?.text ?? "");
      showPaths(all, now.paths);
      showLedger(now);
      history.add(all.time_ms, { ...now, quality: attained.quality, commit_delay_ms: now.commit_delay_ms?.mean ?? null, event_delay_ms: now.event_delay_ms?.mean ?? null });
      charts.rates.show([["matched", history.rate("matched")], ["delivered", history.rate("delivered")], ["given up", history.rate("reduced")]]);
      const inSeconds = (list_) => list_.map(([time, value]) => [time, value / 1000]);
      charts.delays.show([["since commit", inSeconds(history.meanBetween("commit_delay_ms", "delivered"))], ["since event", inSeconds(history.meanBetween("event_delay_ms", "delivered"))]]);
      charts.terms.show([["in flight", history.level("in_flight")], ["in queues", history.level("queued_rows")]]);
      charts.quality.show([["attained", history.level("quality")]], attained.at_least, "contract");
      charts.level.show([["level", history.level("level")]]);
      charts.total.show([["matched", history.level("matched")], ["delivered", history.level("delivered")], ["reduced", history.level("reduced")], ["expired", history.level("expired")]]);
    },
    stop() {
      sample.stop();
    },
  };
}
