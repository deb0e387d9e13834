// Making a subscription, or changing one: with a preview of what would match and what it would cost on which link.
import { get, named, overview, send, user } from "../api.js";
import { h, settled } from "../dom.js";
import { arrow, bits, percent, perSecond, quality, several } from "../format.js";
import { gauge, nameLink, trouble } from "../parts.js";

const field = (words, input, all = false) => h("label", { class: all ? "all" : null }, words, input);

export async function make({ settings }) {
  const copied = settings.get("copy") ? await get(`/api/subscriptions/${named(settings.get("copy"))}`) : null;
  // A user knows of the sites of its streams and of its subscriptions, and may name others.
  const [{ streams }, { sites }] = await Promise.all([get("/api/streams"), user === null ? get("/api/sites") : overview()]);
  const { paused: _, ...before } = copied?.subscription ?? {};
  const choose = (names, value) => {
    const select = h("select", { required: true }, names.map((each) => h("option", { value: each }, each)));
    if (value) select.value = value;
    return select;
  };
  const name = h("input", { required: true, value: copied?.name ?? settings.get("name") ?? "", pattern: "[A-Za-z0-9_\\-]+", title: "letters, digits, _ and -", autocomplete: "off" });
  const stream = choose(Object.keys(streams), before.stream ?? settings.get("stream"));
  const known = h("datalist", { id: "sites" }, Object.keys(sites).map((each) => h("option", { value: each })));
  const site = user === null ? choose(Object.keys(sites), before.site ?? settings.get("site")) : h("input", { required: true, list: "sites", autocomplete: "off", value: before.site ?? settings.get("site") ?? Object.keys(sites)[0] ?? "" });
  const where = h("textarea", { class: "code", spellcheck: "false", placeholder: "speed > 20 and status = 'moving'" });
  where.value = before.where && before.where !== "TRUE" ? before.where : (settings.get("where") ?? "");
  const select = h("input", { class: "code", placeholder: "all columns", value: before.select?.join(", ") ?? "" });
  const resolution = h("select", {}, ["", "1/2", "1/4", "1/16", "1/64"].map((each) => h("option", { value: each }, each || "all points")));
  resolution.value = before.resolution?.space ?? "";
  const delay = h("input", { placeholder: "2 s", value: before.quality?.delay ?? "" });
  const drop = h("input", { type: "number", min: 0, max: 1, step: "any", placeholder: "0.05", value: before.quality?.drop ?? "" });
  const atLeast = h("input", { type: "number", min: 0, max: 1, step: "any", placeholder: "none", value: before.quality?.at_least ?? "" });
  const policy = h("textarea", { class: "code", spellcheck: "false", placeholder: '{"levels": [{"conflate": "vehicle"}]}' });
  policy.value = before.policy ? JSON.stringify(before.policy, null, 1) : "";
  const resolutionField = field("Resolution in space", resolution);
  const columns = h("p", { class: "faint all" });
  const shown = h("div", { "aria-live": "polite" }, h("p", { class: "faint" }, "Write a filter, and its share of the rows is shown here."));
  const said = h("div");
  const button = h("button", { class: "main" }, copied ? "Change it" : "Make it");

  function document_() {
    const found = { ...before, stream: stream.value, site: site.value, where: where.value.trim() || "TRUE" };
    found.select = select.value.trim() ? select.value.split(",").map((each) => each.trim()).filter(Boolean) : null;
    found.resolution = streams[stream.value].grid && resolution.value ? { ...before.resolution, space: resolution.value } : null;
    found.quality = { ...(before.quality ?? {}), drop: drop.value === "" ? null : Number(drop.value), delay: delay.value || null, at_least: atLeast.value === "" ? null : Number(atLeast.value) };
    found.quality = Object.fromEntries(Object.entries(found.quality).filter(([, value]) => value !== null));
    if (!Object.keys(found.quality).length) delete found.quality;
    found.policy = policy.value.trim() ? JSON.parse(policy.value) : null;
    return Object.fromEntries(Object.entries(found).filter(([, value]) => value !== null));
  }

  let asked = 0;
  async function preview() {
    const mine = ++asked;
    describe();
    if (!site.value) return;
    try {
      const [found, all] = await Promise.all([send("POST", "/api/preview", { name: name.value || "preview", ...document_() }), overview()]);
      if (mine === asked) shown.replaceChildren(...judged(found, all));
    } catch (error) {
      if (mine === asked) shown.replaceChildren(trouble(error));
    }
  }

  function judged(found, all) {
    const nodes = [];
    for (const part of found.parts) {
      const [least, most] = [part.share_at_least, part.share_at_most];
      if (least === null) {
        nodes.push(h("p", {}, `No row of ${part.stream} was committed yet, so nothing can be said of the share.`));
        continue;
      }
      const range = most - least < 0.0005 ? percent(least) : `${percent(least)} to ${percent(most)}`;
      const rate = part.rows_per_s === null ? "" : `: about ${perSecond(part.rows_per_s)}`;
      if (user !== null) {
        nodes.push(h("p", {}, h("strong", { class: "share" }, range), ` of the rows of ${part.stream}${rate}, by ${several(part.looked_at, "row")} that were drawn at random.`), h("p", { class: "faint" }, "You get the rows and columns of it that you were granted."));
        continue;
      }
      nodes.push(h("p", {}, h("strong", { class: "share" }, range), ` of the last ${several(part.evaluated, "row")}${rate}.`, most - least < 0.0005 ? "" : " Rows that nobody wanted are not kept, hence the range."));
      nodes.push(h("h3", {}, "What it would cost"));
      if (!part.path.length) nodes.push(h("p", {}, part.path.length === 0 && site.value === streams[part.stream]?.root ? "Nothing on any link: it is delivered at the root." : `${site.value} does not get ${part.stream} yet: the planner would attach it.`));
      else nodes.push(h("ul", { class: "list" }, part.hops.map((hop) => {
        const link = all.links.find((each) => each.name === hop.link);
        const after = link?.limit_bytes_per_s && link.load !== null && hop.extra_bytes_per_s !== null ? link.load + hop.extra_bytes_per_s / link.limit_bytes_per_s : null;
        return h("li", {}, h("div", { class: "row" }, arrow(hop.link), after === null ? h("span", { class: "faint" }, `${percent(hop.extra_share)} more rows`) : gauge(after)),
          h("div", { class: "faint" }, hop.extra_share ? `${bits(hop.extra_bytes_per_s)} more${link?.load == null ? "" : `, from ${percent(link.load)}`}` : "nothing more: it carries these rows already"));
      })));
      nodes.push(...charged(part.costs));
    }
    if (found.filter.simplified && found.filter.simplified !== (where.value.trim() || "TRUE")) nodes.push(h("h3", {}, "It means"), h("pre", {}, found.filter.simplified));
    return nodes;
  }

  /** What the plan would grant it, and who would get less. */
  function charged(costs) {
    if (!costs) return [];
    const nodes = [h("h3", {}, "Who would get less")];
    const more = costs.losers_count - costs.losers.length;
    if (!costs.losers.length) nodes.push(h("p", {}, "Nobody, by the plan in force."));
    else nodes.push(h("ul", { class: "list" }, costs.losers.map((each) => h("li", {}, h("div", { class: "row" }, nameLink(each.subscription), h("span", {}, each.quality_after < each.quality_before - 0.0005 ? `quality ${quality(each.quality_before)} → ${quality(each.quality_after)}` : `drop ${percent(each.drop_before)} → ${percent(each.drop_after)}`)))), more ? h("li", { class: "faint" }, `and ${several(more, "more subscription")}`) : null));
    if (costs.granted?.quality != null) nodes.push(h("p", { class: "faint" }, `It would itself get quality ${quality(costs.granted.quality)}, drop ${percent(costs.granted.drop)}${costs.granted.binds ? `: ${costs.granted.binds}` : ""}.`));
    return nodes;
  }

  function describe() {
    const about = streams[stream.value];
    resolutionField.hidden = !about.grid;
    columns.textContent = `Columns: ${about.schema.map((each) => `${each.name} (${each.type})`).join(", ")}`;
  }

  async function submit(event) {
    event.preventDefault();
    button.disabled = true;
    try {
      const replaces = copied && copied.name === name.value;
      const made = replaces ? await send("PUT", `/api/subscriptions/${named(name.value)}`, document_()) : await send("POST", "/api/subscriptions", { name: name.value, ...document_() });
      location.hash = `#/subscription/${named(made.name)}`;
    } catch (error) {
      said.replaceChildren(trouble(error));
      button.disabled = false;
    }
  }
  name.addEventListener("input", () => (button.textContent = copied && copied.name === name.value ? "Change it" : "Make it"));

  const form = h("form", { class: "form", onsubmit: submit, oninput: settled(300, preview) },
    field("Name", name), field("Stream", stream), field("Site to deliver at", site), known, resolutionField,
    field("Which rows (SQL; empty: all)", where, true), columns, field("Columns, with commas", select, true),
    field("Tolerated delay", delay), field("Tolerated drop, 0 to 1", drop), field("Contracted quality, 0 to 1", atLeast),
    h("details", { class: "all", open: Boolean(policy.value) }, h("summary", {}, "What to give up first (policy, as JSON)"), policy),
    h("div", { class: "all row" }, button, h("a", { class: "button", href: "#/subscriptions" }, "Leave it")), h("div", { class: "all" }, said));
  policy.setAttribute("aria-label", "Policy as JSON");
  const node = h("div", {}, h("h1", {}, copied ? `Change or copy ${copied.name}` : "New subscription"),
    h("div", { class: "grid" }, h("section", { class: "panel wide" }, form), h("section", { class: "panel narrow" }, h("h2", {}, "Preview"), shown)));
  preview();
  return { title: "New subscription", node, every: 3_600_000 };
}
