// Lines over time as SVG, drawn by hand, and the samples that they are made of.
import { get } from "./api.js";
import { attribute, h, replace, svg, text } from "./dom.js";
import { clock } from "./format.js";

const WIDTH = 420;
const HEIGHT = 150;
const LEFT = 62;
const BOTTOM = 22;
const TONES = ["one", "two", "three", "four"];
const KEPT = 600;
const RATE_MS = 2900; // rates are over at least about three micro-batches

/** Samples of one thing: what the server has kept for the last hour, and what the page reads from now on. */
export class History {
  constructor(of, name) {
    this.of = of;
    this.name = name;
    this.times = [];
    this.values = {};
    this.loading = get("/api/measurements/series", { of, name }).then(
      (found) => {
        const before = [this.times, this.values];
        this.times = found.times_ms;
        this.values = found.series;
        before[0].forEach((time, place) => this.add(time, Object.fromEntries(Object.entries(before[1]).map(([key, list]) => [key, list[place]]))));
      },
      () => null,
    );
  }

  /** Take in a reading; one that is not newer is none. */
  add(time, figures) {
    if (this.times.length && time <= this.times.at(-1)) return;
    this.times.push(time);
    for (const key of new Set([...Object.keys(this.values), ...Object.keys(figures)])) {
      const list = (this.values[key] ??= Array(this.times.length - 1).fill(null));
      list.push(figures[key] ?? null);
    }
    if (this.times.length > KEPT) {
      this.times = this.times.slice(-KEPT);
      for (const key of Object.keys(this.values)) this.values[key] = this.values[key].slice(-KEPT);
    }
  }

  /** A figure over time. */
  level(key) {
    return this.times.map((time, place) => [time, this.values[key]?.[place] ?? null]);
  }

  /** How fast a counter grows, a second; it may begin anew. */
  rate(key) {
    const found = [];
    let last = null;
    this.level(key).forEach(([time, value]) => {
      if (value === null) return;
      if (last && time - last[0] >= RATE_MS) {
        found.push([time, value < last[1] ? null : (1000 * (value - last[1])) / (time - last[0])]);
        last = [time, value];
      } else if (!last) last = [time, value];
    });
    return found;
  }

  /** The mean of a delay between two readings, from its mean since the start and how many rows that was over. */
  meanBetween(key, counter) {
    const found = [];
    let last = null;
    this.times.forEach((time, place) => {
      const [mean, many] = [this.values[key]?.[place], this.values[counter]?.[place]];
      if (mean == null || many == null) return;
      if (last && many > last[1]) found.push([time, Math.max(0, (mean * many - last[0] * last[1]) / (many - last[1]))]);
      if (!last || many !== last[1]) last = [mean, many];
    });
    return found;
  }
}

/** A round number at or above a value. */
function ceiling(value) {
  if (!(value > 0)) return 1;
  const power = 10 ** Math.floor(Math.log10(value));
  return [1, 2, 2.5, 5, 10].map((each) => each * power).find((each) => each >= value * 0.999);
}

/**
 * A chart of up to four lines. `show(lines, limit, what, marks)`: lines are [title, [[time, value], …]], `what` says of what
 * the limit is, marks are [time, words]: something that happened then.
 */
export class Chart {
  constructor(title, format) {
    this.title = title;
    this.format = format;
    this.lines = svg("g");
    this.top = svg("text", { x: LEFT - 6, y: 14, "text-anchor": "end" });
    this.half = svg("text", { x: LEFT - 6, y: (HEIGHT - BOTTOM) / 2 + 8, "text-anchor": "end" });
    this.from = svg("text", { x: LEFT, y: HEIGHT - 5 });
    this.to = svg("text", { x: WIDTH - 2, y: HEIGHT - 5, "text-anchor": "end" });
    this.limit = svg("path", { class: "limit" });
    this.marks = svg("g");
    this.picture = svg("svg", { class: "chart", viewBox: `0 0 ${WIDTH} ${HEIGHT}`, role: "img", "aria-label": title },
      svg("path", { class: "axis", d: `M${LEFT} 10H${WIDTH}M${LEFT} ${(HEIGHT - BOTTOM + 10) / 2}H${WIDTH}M${LEFT} ${HEIGHT - BOTTOM}H${WIDTH}` }),
      this.marks, this.lines, this.limit, this.top, this.half, svg("text", { x: LEFT - 6, y: HEIGHT - BOTTOM + 2, "text-anchor": "end" }, "0"), this.from, this.to);
    this.legend = h("ul", { class: "legend" });
    this.node = h("figure", { class: "figure" }, h("figcaption", {}, h("h3", {}, title)), this.picture, this.legend);
  }

  show(lines, limit = null, what = "limit", marks = []) {
    const points = lines.flatMap(([, list]) => list).filter(([, value]) => value !== null);
    const times = points.map(([time]) => time);
    const [first, last] = [Math.min(...times), Math.max(...times)];
    const most = ceiling(Math.max(...points.map(([, value]) => value), limit ?? 0));
    const x = (time) => LEFT + ((time - first) / Math.max(last - first, 1)) * (WIDTH - LEFT - 4);
    const y = (value) => HEIGHT - BOTTOM - (value / most) * (HEIGHT - BOTTOM - 10);
    while (this.lines.children.length < lines.length) this.lines.append(svg("path", { class: TONES[this.lines.children.length] }));
    lines.forEach(([, list], place) => {
      let path = "";
      let pen = "M";
      for (const [time, value] of list) {
        if (value === null) pen = "M";
        else {
          path += `${pen}${x(time).toFixed(1)} ${y(value).toFixed(1)}`;
          pen = "L";
        }
      }
      attribute(this.lines.children[place], "d", list.filter(([, value]) => value !== null).length > 1 ? path : null);
    });
    attribute(this.limit, "d", limit === null || !points.length ? null : `M${LEFT} ${y(limit).toFixed(1)}H${WIDTH}`);
    const inside = marks.filter(([time]) => points.length > 1 && time >= first && time <= last);
    replace(this.marks, JSON.stringify([inside, first, last]), () => inside.map(([time, words]) => svg("path", { class: "mark", d: `M${x(time).toFixed(1)} 10V${HEIGHT - BOTTOM}` }, svg("title", {}, words))));
    text(this.top, points.length ? this.format(most) : "");
    text(this.half, points.length ? this.format(most / 2) : "");
    text(this.from, points.length > 1 ? clock(first) : "");
    text(this.to, points.length > 1 ? clock(last) : "not enough samples yet");
    const latest = lines.map(([title, list]) => [title, list.findLast(([, value]) => value !== null)?.[1] ?? null]);
    attribute(this.picture, "aria-label", `${this.title}: ${latest.map(([title, value]) => `${title} ${this.format(value)}`).join(", ")}`);
    const shown = limit === null ? latest : [...latest, [what, limit]];
    if (this.legend.children.length !== shown.length) {
      this.legend.replaceChildren(...shown.map((_, place) => h("li", {}, h("span", { class: `key ${place < lines.length ? TONES[place] : "bad"}` }), h("span"))));
    }
    shown.forEach(([title, value], place) => text(this.legend.children[place].lastChild, `${title} ${this.format(value)}`));
  }
}
