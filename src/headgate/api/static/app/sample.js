// A live sample of a subscription's rows: read along by the client, without taking over and without acknowledging.
import { HeadgateClient } from "../client/headgate-client.js";
import { h, text } from "./dom.js";
import { count } from "./format.js";

const SHOWN = 12;
const DIGESTS = 6;
const DRAW_MS = 500;

const cell = (value) => (value === null || value === undefined ? "" : typeof value === "number" ? Number(value.toPrecision(6)).toString() : typeof value === "object" ? JSON.stringify(value) : String(value));

export class Sample {
  constructor(name, onRows) {
    this.onRows = onRows;
    this.client = new HeadgateClient(undefined, { onState: (state) => this.#say(state) });
    this.rows = [];
    this.lost = [];
    this.seen = 0;
    this.said = h("p", { class: "faint" }, "Waiting for rows…");
    this.head = h("tr");
    this.body = h("tbody");
    this.digests = h("ul", { class: "list" });
    this.none = h("p", { class: "faint" }, "Nothing was given up since this page was opened.");
    this.node = h("section", { class: "panel" }, h("h2", {}, "Rows as they arrive"), this.said,
      h("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": "Rows as they arrive" }, h("table", {}, h("caption", { class: "sr" }, "The newest rows, newest first"), h("thead", {}, this.head), this.body)));
    this.given = h("section", { class: "panel half" }, h("h2", {}, "Given up, with digests"), this.none, this.digests);
    this.timer = setInterval(() => this.#draw(), DRAW_MS);
    this.#read(name);
  }

  async #read(name) {
    try {
      for await (const delivery of this.client.subscribe(name, { peek: true, maxRows: 500 })) {
        this.seen += delivery.rows.length;
        if (delivery.rows.length) {
          this.rows = [...delivery.rows.slice(-SHOWN).reverse(), ...this.rows].slice(0, SHOWN);
          this.fresh = true;
          this.onRows?.(delivery.rows);
        }
        if (delivery.givenUp) {
          this.lost = [delivery, ...this.lost].slice(0, DIGESTS);
          this.fresh = true;
        }
        // A backlog is taken in piece by piece, so that the page stays quick.
        await new Promise((done) => setTimeout(done, 20));
      }
    } catch (error) {
      this.failed = true;
      text(this.said, error.hint ? `${error.message} (${error.hint})` : error.message);
    }
  }

  #say(state) {
    if (state === "waiting" && !this.failed) text(this.said, "The connection is gone; it is made again.");
    this.fresh = true;
  }

  #draw() {
    if (!this.fresh || document.hidden) return;
    this.fresh = false;
    if (this.rows.length && !this.failed) text(this.said, `${count(this.seen)} rows read along; the newest first. Nothing is acknowledged by this.`);
    const columns = this.rows.length ? Object.keys(this.rows[0]) : [];
    if (this.head.children.length !== columns.length) this.head.replaceChildren(...columns.map((each) => h("th", { scope: "col" }, each)));
    this.body.replaceChildren(...this.rows.map((row) => h("tr", {}, columns.map((each) => h("td", {}, cell(row[each]))))));
    this.none.hidden = this.lost.length > 0;
    this.digests.replaceChildren(...this.lost.map(({ after, upto, givenUp }) => h("li", {},
      h("div", {}, `Of rows ${count(after + 1)} to ${count(upto)}: `, Object.entries({ ...givenUp.given_up, ...(givenUp.shed ? { "shed unread": givenUp.shed } : {}), ...(givenUp.unevaluated ? { "not looked at": givenUp.unevaluated } : {}), ...givenUp.unsent }).map(([why, many]) => `${count(many)} by ${why}`).join(", ")),
      givenUp.digest ? h("code", { class: "faint" }, JSON.stringify(givenUp.digest)) : null)));
  }

  stop() {
    clearInterval(this.timer);
    this.client.close();
  }
}
