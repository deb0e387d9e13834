// The live tuner on the plan page: what its objective costs over time, and what each transformation was to bring and brought.
import { get } from "./api.js";
import { Chart } from "./charts.js";
import { h, replace, Table, text } from "./dom.js";
import { clock, count, several } from "./format.js";
import { Figures, tag } from "./parts.js";

const SHOWN = 40;

/** A figure of an objective, whose unit nobody knows here: four digits. */
const figure = (value) => (value === null || value === undefined ? "–" : value.toLocaleString("en", { maximumSignificantDigits: 4 }));
const moved = (step) => Object.entries(step.moves).map(([site, parent]) => `${site} below ${parent}`).join(", ");
const named = (step) => `${step.transformation}${step.random ? " (random)" : ""}`;
const better = (value) => (value === null || value === undefined ? "–" : `${value > 0 ? "+" : ""}${figure(value)}`);

export class TuningPanel {
  constructor() {
    this.figures = new Figures(["State", "Cost now", "At the start", "Transformations", "Period"]);
    this.cost = new Chart("Cost over time, with a line at each transformation", figure);
    this.wishes = h("div");
    this.none = h("p", { class: "faint" }, "No transformation was made yet.");
    this.table = new Table("Transformations, newest first", [
      { title: "At", text: (each) => clock(each.time_ms), left: true },
      { title: "Stream", key: "stream", left: true },
      { title: "Transformation", text: named, left: true },
      { title: "Moves", text: moved, left: true, wrap: true },
      { title: "Cost before", text: (each) => figure(each.cost_before) },
      { title: "Better, as predicted", text: (each) => better(each.predicted) },
      { title: "Better, as measured", text: (each) => better(each.measured) },
      { title: "State", text: (each) => each.state + each.why, left: true, wrap: true, node: (each) => h("span", {}, tag(each.state === "refused" ? "warn" : "good", each.state), each.why ? ` ${each.why}` : "") },
    ], { keyOf: (each) => `${each.run} ${each.period} ${each.stream} ${each.owner} ${each.time_ms}` });
    this.node = h("section", { class: "panel", hidden: true }, h("h2", {}, "Tuning"), this.figures.node,
      h("div", { class: "grid" }, h("div", { class: "half" }, this.cost.node), h("div", { class: "half" }, this.wishes)), this.none, this.table.node);
  }

  async refresh() {
    const { tuning } = await get("/api/plan/tuning");
    this.node.hidden = tuning === null;
    if (tuning === null) return;
    // Before every site has told of itself the cost is that of a part.
    const known = Math.max(0, ...tuning.costs.map((each) => each.sites));
    const costs = tuning.costs.filter((each) => each.cost !== null && each.sites === known);
    const steps = tuning.steps.filter((each) => each.state !== "refused");
    const missed = Object.entries(tuning.costs.at(-1)?.missed ?? {});
    this.figures.show([
      [tuning.state, `since ${clock(tuning.began_ms)}`], figure(tuning.cost), figure(costs[0]?.cost),
      [count(steps.length), tuning.steps.length > steps.length ? `${count(tuning.steps.length - steps.length)} refused` : ""],
      [`${tuning.every_s} s`, tuning.modes.join(", ")],
    ]);
    const said = [`Objective: ${tuning.objective ?? "none"}.`, ...tuning.constraints.map((each) => `Constraint: ${each}.`), ...missed.map(([each, by]) => `Missed: ${each}, by ${figure(by)}.`)];
    replace(this.wishes, said.join(), () => said.map((each) => h("p", { class: "faint" }, each)));
    this.cost.show([["cost", costs.map((each) => [each.time_ms, each.cost])]], null, "", steps.map((each) => [each.time_ms, `${named(each)}: ${moved(each)}`]));
    this.none.hidden = tuning.steps.length > 0;
    this.table.node.hidden = !tuning.steps.length;
    this.table.show(tuning.steps.slice(-SHOWN).reverse());
    text(this.table.table.caption, `${several(tuning.steps.length, "transformation")}, newest first`);
  }
}
