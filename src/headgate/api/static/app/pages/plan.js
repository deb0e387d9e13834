// Plans: the one in force and what it attains, what a change would do, proposals that wait, and plans before it.
import { get, has, overview, send } from "../api.js";
import { Chart, History } from "../charts.js";
import { h, replace, settled } from "../dom.js";
import { bits, clock, count, percent, perSecond, quality, seconds, several } from "../format.js";
import { Figures, nameLink, tag, trouble } from "../parts.js";
import { TuningPanel } from "../tuning.js";

const STEPS = 24; // of a slider, to either side: up to eight times as much or an eighth
const MOST = 15;
const SLIDERS = 16; // of each kind, the most loaded

/** A tree of a stream as nested lists. */
function branch(site, children) {
  return h("li", {}, site, children.has(site) ? h("ul", {}, children.get(site).map((each) => branch(each, children))) : null);
}

function tree(root, parents) {
  const children = new Map();
  for (const [child, parent] of Object.entries(parents)) children.set(parent, [...(children.get(parent) ?? []), child].sort());
  return h("ul", { class: "tree" }, branch(root, children));
}

/** The difference of two plans as steps, cut where there are many. */
const stepList = (steps) => (steps?.length ? h("ul", {}, steps.slice(0, MOST).map((each) => h("li", {}, each)), steps.length > MOST ? h("li", { class: "faint" }, `and ${steps.length - MOST} more`) : null) : h("p", { class: "faint" }, "No member gets another parent."));

/** Who gets another parent, from whom to whom, cut where there are many. */
function moveTable(moved) {
  if (!moved?.length) return h("p", { class: "faint" }, "No member gets another parent.");
  const row = (each) => h("tr", {}, h("th", { scope: "row", class: "text" }, each.site), h("td", { class: "text" }, each.stream), h("td", { class: "text" }, each.from ?? "joins"), h("td", { class: "text" }, each.to ?? "leaves"));
  return h("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": "Who gets another parent" }, h("table", {}, h("caption", { class: "sr" }, "Who gets another parent"),
    h("thead", {}, h("tr", {}, ["Site", "Stream", "Parent before", "Parent after"].map((each) => h("th", { scope: "col", class: "text" }, each)))),
    h("tbody", {}, moved.slice(0, MOST).map(row))), moved.length > MOST ? h("p", { class: "faint" }, `and ${moved.length - MOST} more`) : null);
}

const rounded = (value) => (value === null ? "–" : Number(value.toPrecision(3)).toString());

/** What a change was predicted to bring, and what tuning measured of it. */
function brought(each) {
  if (each.quality_after !== null) return h("p", {}, "Predicted quality ", h("strong", {}, `${quality(each.quality)} → ${quality(each.quality_after)}`), each.by ? `, by ${each.by}` : "");
  if (each.tuned) return h("p", {}, `${each.tuned.transformation}: cost `, h("strong", {}, `${rounded(each.tuned.cost)} → ${rounded(each.tuned.cost_predicted)}`), ` predicted, ${rounded(each.tuned.cost_measured)} measured (${each.tuned.objective})`);
  return h("p", { class: "faint" }, "Nothing was predicted of it: no plan was compared with the one before.");
}

function slider(title, words, change) {
  const input = h("input", { type: "range", min: -STEPS, max: STEPS, value: 0, step: 1 });
  const value = h("output", {}, words(1));
  const factor = () => 8 ** (Number(input.value) / STEPS);
  input.addEventListener("input", () => {
    value.textContent = words(factor());
    input.setAttribute("aria-valuetext", words(factor()));
  });
  return { node: h("label", { class: "slider" }, h("span", {}, title), input, value), changed: () => (Number(input.value) ? change(factor()) : null), reset: () => ((input.value = 0), (value.textContent = words(1))) };
}

export async function make() {
  const history = new History("planner", "_");
  const figures = new Figures(["Attained quality", "Predicted", "Best plan found", "It would move", "Changes so far", "State"]);
  const over = new Chart("Quality of the plan", quality);
  const cost = new Chart("Members that a better plan would move, changes so far", count);
  const trees = h("div", { class: "row trees" });
  const notes = h("div");
  const log = h("ul", { class: "list" });
  const sliders = [];
  const bench = h("div");
  const answer = h("div", { "aria-live": "polite" });
  const proposals = h("section", { class: "panel half", hidden: true });
  const past = h("section", { class: "panel half", hidden: true });
  const tuning = new TuningPanel();
  const keep = h("input", { type: "checkbox", checked: true });

  function build(found) {
    if (sliders.length) return;
    const rate = (name) => found.streams[name].rows_per_s ?? found.streams[name].declared_rows_per_s ?? 100;
    const load = (each) => (each.up_bytes_per_s ?? 0) / (each.upload_bytes_per_s || Infinity);
    const sites = Object.entries(found.sites).sort((a, b) => load(b[1]) - load(a[1]));
    for (const [name, each] of sites.slice(0, SLIDERS)) {
      const upload = each.upload_bytes_per_s ?? each.measured_upload_bytes_per_s ?? 125_000;
      sliders.push(slider(`Upload of ${name}`, (factor) => bits(upload * factor), (factor) => `site ${name} upload=${Math.round(upload * factor * 8)}bit/s`));
    }
    for (const name of Object.keys(found.streams).slice(0, SLIDERS)) {
      sliders.push(slider(`Rate of ${name}`, (factor) => perSecond(rate(name) * factor), (factor) => `stream ${name} rate=${(rate(name) * factor).toFixed(2)}/s`));
    }
    for (const each of found.links.filter((link) => link.limited_by === "capacity").slice(0, SLIDERS)) {
      sliders.push(slider(`Link ${each.from} to ${each.to}`, (factor) => bits(each.limit_bytes_per_s * factor), (factor) => `link ${each.from}-${each.to} capacity=${Math.round(each.limit_bytes_per_s * factor * 8)}bit/s`));
    }
    bench.replaceChildren(...sliders.map((each) => each.node));
  }

  let asked = 0;
  async function ask() {
    const changes = sliders.map((each) => each.changed()).filter(Boolean);
    const mine = ++asked;
    if (!changes.length) {
      answer.replaceChildren(h("p", { class: "faint" }, "Move a slider to ask what the change would do. Nothing is changed by it."));
      return;
    }
    answer.setAttribute("aria-busy", "true");
    try {
      const found = await send("POST", "/api/plan/what-if", { changes, keep: keep.checked });
      if (mine === asked) answer.replaceChildren(...compared(found, changes));
    } catch (error) {
      if (mine !== asked) return;
      if (error.status === 503) setTimeout(() => mine === asked && ask(), 500);
      else answer.replaceChildren(trouble(error));
    } finally {
      answer.removeAttribute("aria-busy");
    }
  }

  function compared(found, changes) {
    const { before, after } = found;
    const touched = Object.entries(after.subscriptions)
      .map(([name, each]) => [name, before?.subscriptions[name], each])
      .filter(([, was, will]) => was && Math.abs((was.quality ?? 0) - (will.quality ?? 0)) > 0.005)
      .sort((a, b) => Math.abs(b[2].quality - b[1].quality) - Math.abs(a[2].quality - a[1].quality));
    const mean = (each) => quality(each?.metrics.geometric_mean ?? null);
    return [
      h("p", {}, h("code", {}, changes.join("; "))),
      h("p", {}, "Quality of the plan ", h("strong", {}, `${mean(before)} → ${mean(after)}`), found.moves === undefined ? "" : `, with ${several(found.moves, "move")}`, "."),
      touched.length ? h("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": "Subscriptions that would get more or less" }, h("table", {}, h("caption", { class: "sr" }, "Who would get more or less"), h("thead", {}, h("tr", {}, ["Subscription", "Site"].map((each) => h("th", { scope: "col", class: "text" }, each)), ["Now", "Then", "Drop then"].map((each) => h("th", { scope: "col" }, each)), h("th", { scope: "col", class: "text" }, "What binds"))),
        h("tbody", {}, touched.slice(0, MOST).map(([name, was, will]) => h("tr", {}, h("th", { scope: "row", class: "text" }, nameLink(name)), h("td", { class: "text" }, will.site), h("td", {}, quality(was.quality)), h("td", {}, quality(will.quality)), h("td", {}, percent(will.drop)), h("td", { class: "text wrap" }, will.binds ?? "")))))) : h("p", {}, "Nobody would get more or less."),
      touched.length > MOST ? h("p", { class: "faint" }, `and ${touched.length - MOST} more`) : null,
      after.overloads.length ? h("div", { class: "notice warn" }, after.overloads.slice(0, 5).map((each) => h("p", {}, each))) : null,
      found.steps ? h("details", {}, h("summary", {}, "Steps of the change"), stepList(found.steps)) : null,
    ].filter(Boolean);
  }

  async function showProposal() {
    if (!(await has("/api/plan/proposed"))) return;
    const { proposal } = await get("/api/plan/proposed");
    proposals.hidden = false;
    const decide = (verb) => async () => {
      try {
        await send("POST", `/api/plan/${verb}`, { proposal: proposal.id });
        proposals._key = null;
      } catch (error) {
        proposals.append(trouble(error));
      }
    };
    replace(proposals, JSON.stringify(proposal), () => [
      h("h2", {}, "Proposed plan"),
      proposal ? h("div", {},
        h("p", {}, tag(proposal.state === "pending" ? "warn" : "plain", proposal.state), ` by ${proposal.by}, ${clock(proposal.time_ms)}: quality ${quality(proposal.quality ?? null)} → ${quality(proposal.quality_proposed ?? null)}, ${several(proposal.moves, "move")}.`),
        moveTable(proposal.moved),
        h("details", {}, h("summary", {}, "Steps of the change"), stepList(proposal.steps)),
        proposal.state === "pending" ? h("div", { class: "row" }, h("button", { class: "main", type: "button", onclick: decide("approve") }, "Approve"), h("button", { type: "button", onclick: decide("reject") }, "Reject")) : null) : h("p", { class: "faint" }, "None was made."),
      h("p", {}, h("button", { type: "button", onclick: async (event) => {
        event.target.disabled = true;
        try {
          await send("POST", "/api/plan/propose", { algorithm: "search" });
        } catch (error) {
          proposals.append(trouble(error));
        }
        event.target.disabled = false;
      } }, "Propose one now")),
    ]);
  }

  async function showPast() {
    if (!(await has("/api/plan/history"))) return;
    const { plans } = await get("/api/plan/history", { limit: 20 });
    past.hidden = false;
    replace(past, JSON.stringify(plans.map((each) => [each.revision, each.quality_after, each.tuned])), () => [h("h2", {}, "Plans before"), h("ul", { class: "list" }, plans.map((each) => h("li", {}, h("details", {}, h("summary", {}, `Revision ${each.revision}: ${each.what} (${several(each.moves, "move")}${each.quality_after === null ? "" : `, quality ${quality(each.quality)} → ${quality(each.quality_after)}`})`),
      h("p", { class: "faint" }, new Date(each.time).toLocaleString("en-GB")), brought(each), moveTable(each.moved), h("details", {}, h("summary", {}, "Steps of the change"), stepList(each.steps))))))]);
  }

  const askSoon = settled(400, ask);
  const node = h("div", {}, h("h1", {}, "Plan"), figures.node,
    h("div", { class: "grid" },
      h("section", { class: "panel half" }, over.node), h("section", { class: "panel half" }, cost.node),
      h("section", { class: "panel" }, h("h2", {}, "Delivery trees in force"), trees, notes),
      h("section", { class: "panel half" }, h("h2", {}, "What if"), h("form", { oninput: askSoon, onsubmit: (event) => event.preventDefault() }, bench,
        h("p", { class: "row" }, h("label", { class: "row" }, keep, "Keep the plan, with few moves"), h("button", { type: "button", onclick: () => (sliders.forEach((each) => each.reset()), ask()) }, "As it is")))),
      h("section", { class: "panel half" }, h("h2", {}, "What it would do"), answer),
      proposals, past, tuning.node,
      h("section", { class: "panel" }, h("h2", {}, "What tuning has done lately"), log)));
  ask();
  return {
    title: "Plan",
    node,
    every: 2000,
    async refresh() {
      const found = await overview();
      const { planner } = found;
      build(found);
      figures.show([
        [quality(planner.quality), planner.quality_zeros ? `${several(planner.quality_zeros, "subscription")} at 0` : ""],
        quality(planner.quality_predicted), [quality(planner.quality_reachable), planner.gain ? `gain ${percent(planner.gain)}` : ""],
        planner.moves == null ? "–" : several(planner.moves, "member"), count(planner.changes ?? null), [planner.fixed ? "fixed" : (planner.state ?? "–")],
      ]);
      history.add(found.time_ms, planner);
      over.show([["attained", history.level("quality")], ["predicted", history.level("quality_predicted")], ["best found", history.level("quality_reachable")]]);
      cost.show([["would move", history.level("moves")], ["changes", history.level("changes")]]);
      replace(trees, JSON.stringify(Object.entries(found.streams).map(([name, each]) => [name, each.root, each.parents])), () => Object.entries(found.streams).map(([name, each]) => h("div", {}, h("h3", {}, name), tree(each.root, each.parents))));
      const said = [planner.objective ? `Objective: ${planner.objective}.` : "", ...(planner.constraints_missed ?? []).map((each) => `Missed: ${each}`)].filter(Boolean);
      replace(notes, said.join(), () => said.map((each) => h("p", { class: "faint" }, each)));
      const done = [
        ...found.joins.map((each) => [each.time_ms, `${each.site} joined ${each.to} instead of ${each.from} for ${each.stream}: ${seconds(each.hop_s)} away, after ${several(each.rounds, "round")}`]),
        ...found.reorderings.map((each) => [each.time_s * 1000, `${each.site} gives up in another order for ${each.subscriptions.slice(0, 3).join(", ")}: ${each.after.join(", ")} instead of ${each.before.join(", ")}`]),
      ].sort((a, b) => b[0] - a[0]);
      replace(log, JSON.stringify(done), () => (done.length ? done.map(([time, words]) => h("li", {}, h("span", { class: "faint" }, clock(time)), ` ${words}`)) : [h("li", { class: "faint" }, "Nothing: no member has joined another parent, and no policy has changed its order.")]));
      await Promise.all([showProposal(), showPast(), tuning.refresh()]);
    },
  };
}
