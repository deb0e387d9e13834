// Subscriptions: searched and paged by the server, with the attained part of what was contracted as heat.
import { get } from "../api.js";
import { breathe, h, replace, settled, Table, text } from "../dom.js";
import { count, percent, quality, seconds, several } from "../format.js";
import { nameLink, shade, stateTag, TONES, WORDS } from "../parts.js";
import { remember } from "../place.js";

const PAGE = 50;

export function make({ settings }) {
  const wanted = {
    search: settings.get("search") ?? "",
    stream: settings.get("stream") ?? "",
    site: settings.get("site") ?? "",
    state: settings.get("state") ?? "",
    sort: settings.get("sort") ?? "state",
    descending: settings.get("descending") === "true",
    offset: Number(settings.get("offset") ?? 0),
  };
  let asked = 0;
  const ask = (changes) => {
    Object.assign(wanted, { offset: 0 }, changes);
    remember({ ...wanted, sort: wanted.sort === "state" ? "" : wanted.sort, offset: wanted.offset || "" });
    refresh();
  };
  const search = h("input", { type: "search", value: wanted.search, oninput: settled(200, () => ask({ search: search.value })) });
  const choice = (key) => h("select", { onchange: (event) => ask({ [key]: event.target.value }) }, h("option", { value: "" }, "all"));
  const [stream, site] = [choice("stream"), choice("site")];
  const state = h("select", { onchange: () => ask({ state: state.value }) },
    h("option", { value: "" }, "all"), h("option", { value: "unwell" }, "not what they asked for"),
    Object.entries(WORDS).map(([key, words]) => h("option", { value: key }, words)));
  state.value = wanted.state;
  const table = new Table("Subscriptions", [
    { title: "Subscription", key: "name", left: true, sort: "name", node: (each) => nameLink(each.name) },
    { title: "State", key: "state", left: true, sort: "state", node: (each) => stateTag(each.state) },
    { title: "Stream", key: "stream", left: true, sort: "stream" },
    { title: "Site", key: "site", left: true, sort: "site" },
    { title: "Quality", text: (each) => quality(each.quality), sort: "quality" },
    { title: "Contract", text: (each) => quality(each.at_least) },
    { title: "Drop", text: (each) => percent(each.drop), sort: "drop" },
    { title: "Delay", text: (each) => seconds(each.delay_s), sort: "delay_s" },
    { title: "Delivered", text: (each) => count(each.delivered), sort: "delivered" },
    { title: "Given up", text: (each) => count(each.reduced + each.expired) },
    { title: "In flight", text: (each) => count(each.in_flight), sort: "in_flight" },
    { title: "Reason", text: (each) => each.reason?.text ?? "", left: true, wrap: true },
  ], { onSort: (name) => ask({ sort: name, descending: wanted.sort === name && !wanted.descending }) });
  const said = h("p", { class: "faint", role: "status" });
  const back = h("button", { type: "button", onclick: () => ask({ offset: Math.max(0, wanted.offset - PAGE) }) }, "Back");
  const on = h("button", { type: "button", onclick: () => ask({ offset: wanted.offset + PAGE }) }, "Next");
  const heat = h("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": "Attained part of what was contracted, by stream and site" });
  const cells = h("canvas", { class: "cells", role: "img", "aria-label": "A square for each subscription", onclick: (event) => open(event) });
  const cellsNote = h("p", { class: "faint" });
  let shown = [];
  let columns = 1;
  let cell = 12;

  function open(event) {
    const box = cells.getBoundingClientRect();
    const place = Math.floor((event.clientY - box.top) / cell) * columns + Math.floor((event.clientX - box.left) / cell);
    if (shown[place]) location.hash = `#/subscription/${encodeURIComponent(shown[place][0])}`;
  }

  // One square for each subscription, in the order of the table.
  function draw(found) {
    shown = found.cells ?? [];
    cells.hidden = !shown.length;
    cell = shown.length <= 60 ? 28 : shown.length <= 400 ? 18 : shown.length <= 1500 ? 12 : 8;
    const wide = Math.max(40, Math.floor(cells.parentElement.clientWidth));
    columns = Math.max(1, Math.floor(wide / cell));
    const rows = Math.ceil(shown.length / columns);
    const scale = devicePixelRatio;
    const [width, height] = [columns * cell, rows * cell];
    if (cells.width !== width * scale || cells.height !== height * scale) {
      cells.width = width * scale;
      cells.height = height * scale;
      cells.style.width = `${width}px`;
      cells.style.height = `${height}px`;
    }
    const paint = cells.getContext("2d");
    const colours = palette();
    paint.setTransform(scale, 0, 0, scale, 0, 0);
    shown.forEach(([, ratio, itsState], place) => {
      paint.fillStyle = colours[TONES[itsState] === "bad" && ratio === null ? "h0" : shade(ratio)];
      paint.fillRect((place % columns) * cell, Math.floor(place / columns) * cell, cell - 2, cell - 2);
    });
    const bad = shown.filter(([, , each]) => each === "below" || each === "difference" || each === "less").length;
    cells.setAttribute("aria-label", `${several(shown.length, "subscription")}, ${bad} of them not well; the table below has them`);
    text(cellsNote, found.cells === null ? `${several(found.total, "subscription")}: too many for a square each. Choose a stream, a site or a state.` : "A square for each subscription, the worst first. Dark red: less than half of what was contracted; green: all of it.");
  }

  let probe = null;
  let colours = null;
  function palette() {
    if (colours) return colours;
    probe ??= node.appendChild(h("span", { hidden: true }));
    colours = {};
    for (const name of ["h0", "h1", "h2", "h3", "h4", "hn"]) {
      probe.className = name;
      colours[name] = getComputedStyle(probe).backgroundColor;
    }
    return colours;
  }
  const forget = () => {
    colours = null;
  };
  addEventListener("themechange", forget);
  const dark = matchMedia("(prefers-color-scheme: dark)");
  dark.addEventListener("change", forget);

  function showHeat(found) {
    const streams = [...new Set(found.heat.map((each) => each.stream))];
    const sites = [...new Set(found.heat.map((each) => each.site))].sort();
    const byPlace = new Map(found.heat.map((each) => [`${each.stream} ${each.site}`, each]));
    const key = JSON.stringify(found.heat.map((each) => [each.stream, each.site, each.count, each.unwell, percent(each.worst)]));
    replace(heat, key, () => h("table", { class: "heat" },
      h("caption", { class: "sr" }, "The worst attained part of what was contracted, by stream and site"),
      h("thead", {}, h("tr", {}, h("th", { scope: "col", class: "text" }, "Stream"), sites.map((each) => h("th", { scope: "col" }, each)))),
      h("tbody", {}, streams.map((name) => h("tr", {}, h("th", { scope: "row", class: "text" }, name), sites.map((place) => {
        const cell = byPlace.get(`${name} ${place}`);
        if (!cell) return h("td");
        const words = `${name} at ${place}: ${several(cell.count, "subscription")}, ${cell.unwell} not well, the worst attains ${percent(cell.worst)}`;
        return h("td", {}, h("button", { type: "button", class: shade(cell.worst), title: words, "aria-label": words, onclick: () => {
          stream.value = name;
          site.value = place;
          ask({ stream: name, site: place });
        } }, cell.worst === null ? "–" : `${Math.round(100 * cell.worst)} %`));
      }))))));
  }

  function options(select, names, value) {
    replace(select, names.join("\n"), () => [h("option", { value: "" }, "all"), ...names.map((name) => h("option", { value: name }, name))]);
    if (select.value !== value && names.includes(value)) select.value = value;
  }

  async function refresh() {
    const mine = ++asked;
    const found = await get("/api/attainment", { ...wanted, descending: wanted.descending ? "true" : null, limit: PAGE });
    if (mine !== asked) return;
    names.streams = [...new Set([...names.streams, ...found.heat.map((each) => each.stream)])].sort();
    names.sites = [...new Set([...names.sites, ...found.heat.map((each) => each.site)])].sort();
    options(stream, names.streams, wanted.stream);
    options(site, names.sites, wanted.site);
    await breathe();
    table.sorted(wanted.sort, wanted.descending);
    table.show(found.rows);
    const last = Math.min(wanted.offset + PAGE, found.total);
    text(said, found.total ? `${count(wanted.offset + 1)} to ${count(last)} of ${several(found.total, "subscription")}` : "No subscription fits.");
    back.disabled = wanted.offset === 0;
    on.disabled = last >= found.total;
    await breathe();
    showHeat(found);
    await breathe();
    draw(found);
  }

  const names = { streams: [], sites: [] };
  const node = h("div", {},
    h("div", { class: "head" }, h("h1", {}, "Subscriptions"), h("a", { class: "button main end", href: "#/new" }, "New subscription")),
    h("form", { class: "filters", role: "search", onsubmit: (event) => event.preventDefault() },
      h("label", {}, "Name or filter", search), h("label", {}, "Stream", stream), h("label", {}, "Site", site), h("label", {}, "State", state)),
    h("div", { class: "grid" },
      h("section", { class: "panel half" }, h("h2", {}, "Worst attained part, by stream and site"), heat),
      h("section", { class: "panel half" }, h("h2", {}, "Every subscription"), h("div", {}, cells), cellsNote)),
    h("section", { class: "panel spaced" }, h("div", { class: "row" }, said, h("span", { class: "end" }), back, on), table.node));
  return {
    title: "Subscriptions",
    node,
    refresh,
    stop() {
      removeEventListener("themechange", forget);
      dark.removeEventListener("change", forget);
    },
  };
}
