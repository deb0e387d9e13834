// The delivery graph: sites and the links that carry rows, on a map where sites have positions, else as a tree.
import { attribute, h, Keyed, svg, text } from "./dom.js";
import { arrow, bits, percent, perSecond, several } from "./format.js";
import { loadTone } from "./parts.js";

const WIDTH = 960;
const HEIGHT = 560;
const MARGIN = 70;

/** Places of sites in the picture, and for a map how to project. */
function layout(found) {
  const sites = Object.entries(found.sites);
  if (sites.length > 1 && sites.every(([, each]) => each.position)) return onMap(sites);
  return { places: asTree(found), project: null };
}

function onMap(sites) {
  const lats = sites.map(([, each]) => each.position[0]);
  const lons = sites.map(([, each]) => each.position[1]);
  const middle = [(Math.min(...lats) + Math.max(...lats)) / 2, (Math.min(...lons) + Math.max(...lons)) / 2];
  const squeeze = Math.max(Math.cos((middle[0] * Math.PI) / 180), 0.2);
  const wide = Math.max((Math.max(...lons) - Math.min(...lons)) * squeeze, 0.5);
  const high = Math.max(Math.max(...lats) - Math.min(...lats), 0.5);
  const scale = Math.min((WIDTH - 2 * MARGIN) / wide, (HEIGHT - 2 * MARGIN) / high);
  const project = (lat, lon) => [WIDTH / 2 + (lon - middle[1]) * squeeze * scale, HEIGHT / 2 - (lat - middle[0]) * scale];
  return { places: new Map(sites.map(([name, each]) => [name, project(...each.position)])), project };
}

/** Sites in columns by how far they are from the roots. */
function asTree(found) {
  const depth = new Map(Object.keys(found.sites).map((name) => [name, 0]));
  for (const { parents } of Object.values(found.streams)) {
    for (const site of Object.keys(parents)) {
      let steps = 0;
      for (let at = site; at in parents && steps < 99; at = parents[at]) steps += 1;
      depth.set(site, Math.max(depth.get(site) ?? 0, steps));
    }
  }
  const columns = [];
  for (const [name, far] of depth) (columns[far] ??= []).push(name);
  const used = columns.filter(Boolean);
  const places = new Map();
  used.forEach((names, column) => {
    const x = used.length === 1 ? WIDTH / 2 : MARGIN + (column * (WIDTH - 2 * MARGIN)) / (used.length - 1);
    names.sort().forEach((name, row) => places.set(name, [x, ((row + 1) * HEIGHT) / (names.length + 1) + (column % 2) * 14]));
  });
  return places;
}

/** A land outline as a path: rings of differences, in tenths of degrees. */
function landPath(rings, project) {
  let path = "";
  for (const ring of rings) {
    let [lon, lat] = [0, 0];
    const points = [];
    let inside = false;
    for (let place = 0; place < ring.length; place += 2) {
      lon += ring[place];
      lat += ring[place + 1];
      const [x, y] = project(lat / 10, lon / 10);
      inside ||= x > -WIDTH && x < 2 * WIDTH && y > -HEIGHT && y < 2 * HEIGHT;
      points.push(`${x.toFixed(1)} ${y.toFixed(1)}`);
    }
    if (inside) path += `M${points.join("L")}Z`;
  }
  return path;
}

export class Graph {
  constructor() {
    this.ground = svg("g", { "aria-hidden": "true" });
    this.lines = svg("g");
    this.dots = svg("g");
    this.picture = svg("svg", { class: "map", viewBox: `0 0 ${WIDTH} ${HEIGHT}`, role: "group", "aria-label": "Sites, and links that carry rows between them" },
      this.ground, this.lines, this.dots);
    this.legend = h("ul", { class: "legend" },
      [["good", "load below 75 %"], ["warn", "75 to 95 %"], ["bad", "full, or gives up rows"], ["", "not measured"]].map(([tone, words]) =>
        h("li", {}, h("span", { class: `key ${tone}` }), words)),
      h("li", {}, "Width: bytes a second. A filled core: root of a stream. Dashed: a second path."));
    this.node = h("div", {}, this.picture, this.legend);
    this.links = new Keyed(this.lines, () => this.#link(), (node, item) => this.#showLink(node, item));
    this.sites = new Keyed(this.dots, (item) => this.#site(item), (node, item) => this.#showSite(node, item));
    this.shape = "";
    this.rings = null;
    this.places = new Map();
    this.most = 1;
  }

  show(found) {
    const shape = JSON.stringify([Object.entries(found.sites).map(([name, each]) => [name, each.position]), Object.values(found.streams).map((each) => each.parents)]);
    if (shape !== this.shape) {
      this.shape = shape;
      const { places, project } = layout(found);
      this.places = places;
      this.#draw(project);
    }
    this.most = Math.max(1, ...found.links.map((each) => each.bytes_per_s ?? 0));
    const drawn = found.links.filter((each) => this.places.has(each.from) && this.places.has(each.to));
    this.links.show(drawn, (each) => each.name);
    this.sites.show(Object.entries(found.sites).map(([name, each]) => ({ name, ...each })), (each) => each.name);
  }

  async #draw(project) {
    this.ground.replaceChildren();
    if (!project) return;
    for (let degree = -180; degree <= 180; degree += 5) {
      const [x] = project(0, degree);
      const [, y] = project(degree / 2, 0);
      if (x > 0 && x < WIDTH) this.ground.append(svg("path", { class: "graticule", d: `M${x} 0V${HEIGHT}` }));
      if (y > 0 && y < HEIGHT) this.ground.append(svg("path", { class: "graticule", d: `M0 ${y}H${WIDTH}` }));
    }
    try {
      this.rings ??= await (await fetch("/static/app/land.json")).json();
      this.ground.prepend(svg("path", { class: "land", d: landPath(this.rings, project) }));
    } catch {
      // The map does without coasts.
    }
  }

  #link() {
    return svg("g", {}, svg("path", { class: "link" }), svg("path", { class: "head" }), svg("text", { class: "small", "text-anchor": "middle" }), svg("title"));
  }

  #showLink(node, item) {
    const [[x1, y1], [x2, y2]] = [this.places.get(item.from), this.places.get(item.to)];
    const [line, head, label, title] = node.children;
    const long = Math.hypot(x2 - x1, y2 - y1) || 1;
    const [across, along] = [[(y2 - y1) / long, -(x2 - x1) / long], [(x2 - x1) / long, (y2 - y1) / long]];
    const bend = Math.min(26, long / 6);
    const [cx, cy] = [(x1 + x2) / 2 + across[0] * bend, (y1 + y2) / 2 + across[1] * bend];
    const tone = loadTone(item.load, item.lost_rows_per_s ?? 0);
    const width = item.bytes_per_s === null ? 1.5 : 1.5 + 5.5 * Math.sqrt(item.bytes_per_s / this.most);
    attribute(line, "d", `M${x1.toFixed(1)} ${y1.toFixed(1)}Q${cx.toFixed(1)} ${cy.toFixed(1)} ${x2.toFixed(1)} ${y2.toFixed(1)}`);
    attribute(line, "class", `link ${tone}${!item.planned && item.second.length ? " second" : ""}`);
    attribute(line, "stroke-width", width.toFixed(1));
    // The arrow's head lies on the middle of the curve.
    const [mx, my] = [(x1 + 2 * cx + x2) / 4, (y1 + 2 * cy + y2) / 4];
    const size = 4 + width * 0.9;
    const point = (ahead, aside) => `${(mx + along[0] * ahead + across[0] * aside).toFixed(1)} ${(my + along[1] * ahead + across[1] * aside).toFixed(1)}`;
    attribute(head, "d", `M${point(size, 0)}L${point(-size * 0.7, size * 0.75)}L${point(-size * 0.7, -size * 0.75)}Z`);
    attribute(head, "class", `head ${tone}`);
    attribute(label, "x", (mx + across[0] * 34).toFixed(1));
    attribute(label, "y", (my + across[1] * 24 + 4).toFixed(1));
    text(label, item.load !== null && (tone === "bad" || tone === "warn") ? percent(item.load) : "");
    text(title, `${arrow(item.name)}: ${bits(item.bytes_per_s)}${item.limit_bytes_per_s ? ` of ${bits(item.limit_bytes_per_s)} (${item.limited_by})` : ""}` +
      `${item.lost_rows_per_s ? `, gives up ${perSecond(item.lost_rows_per_s)}` : ""}; ${item.streams.join(", ")}${item.second.length ? `; second path of ${item.second.join(", ")}` : ""}${item.off ? `; ${item.off}` : ""}`);
  }

  #site(item) {
    return svg("a", { class: "site", href: `#/sites?site=${encodeURIComponent(item.name)}` },
      svg("circle", { r: 11 }), svg("circle", { class: "core", r: 5 }),
      svg("text", { "text-anchor": "middle", dy: 27 }, item.name), svg("text", { class: "small", "text-anchor": "middle", dy: 41 }), svg("title"));
  }

  #showSite(node, item) {
    const [x, y] = this.places.get(item.name);
    const silent = item.age_s !== null && item.age_s > 30;
    attribute(node, "transform", `translate(${x.toFixed(1)} ${y.toFixed(1)})`);
    attribute(node, "class", `site ${item.unwell || silent ? "bad" : item.level > 0 ? "warn" : ""}`);
    attribute(node.children[1], "r", item.roots.length ? 5 : 0);
    text(node.children[3], item.unwell ? `${item.unwell} of ${item.subscriptions} not well` : "");
    const said = `${item.name}: sends ${bits(item.up_bytes_per_s)}, ${several(item.subscriptions, "subscription")}, ${item.unwell} not well${silent ? ", silent" : ""}`;
    attribute(node, "aria-label", said);
    text(node.children[4], said);
  }
}
