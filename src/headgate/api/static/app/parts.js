// Small things that several pages show alike.
import { h } from "./dom.js";
import { percent } from "./format.js";

export const TONES = { difference: "bad", below: "bad", less: "warn", waiting: "warn", unmeasured: "plain", well: "good" };
export const WORDS = {
  difference: "rows unaccounted for",
  below: "below contract",
  less: "less than asked",
  waiting: "not read",
  unmeasured: "not measured yet",
  well: "well",
};

export const tag = (tone, words) => h("span", { class: `tag ${tone}` }, words);
export const stateTag = (state) => tag(TONES[state] ?? "plain", WORDS[state] ?? state);
export const nameLink = (name) => h("a", { href: `#/subscription/${encodeURIComponent(name)}` }, name);

/** How bad a load is: near its limit, or nearly so. */
export const loadTone = (load, lost) => (lost > 0 || load >= 0.95 ? "bad" : load >= 0.75 ? "warn" : load == null ? "" : "good");

/** A bar of a part of one, with the number beside it. */
export function gauge(value, tone = loadTone(value, 0)) {
  if (value === null || value === undefined) return h("span", { class: "faint" }, "–");
  const bar = h("i");
  bar.style.width = `${Math.min(100, 100 * value).toFixed(1)}%`;
  return h("span", { class: "bar-cell" }, h("span", { class: `gauge ${tone}`, "aria-hidden": "true" }, bar), percent(value));
}

/** The shade of a cell of a heat view. */
export const shade = (ratio) => (ratio === null ? "hn" : ratio < 0.5 ? "h0" : ratio < 0.8 ? "h1" : ratio < 0.98 ? "h2" : ratio < 0.9995 ? "h3" : "h4");

/** Figures of a page as a list of terms. */
export class Figures {
  constructor(titles) {
    this.values = titles.map(() => h("dd"));
    this.node = h("dl", { class: "figures" }, titles.map((title, place) => h("div", {}, h("dt", {}, title), this.values[place])));
  }

  show(values) {
    values.forEach((value, place) => {
      const [main, note] = Array.isArray(value) ? value : [value, ""];
      const key = `${main}|${note}`;
      if (this.values[place]._key === key) return;
      this.values[place]._key = key;
      this.values[place].replaceChildren(main, ...(note ? [" ", h("small", {}, note)] : []));
    });
  }
}

/** What went wrong, where everybody sees it. */
export const trouble = (error) =>
  h("div", { class: "notice bad", role: "alert" }, h("p", {}, error.message), error.hint ? h("p", { class: "faint" }, error.hint) : null);
