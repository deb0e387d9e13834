// The field of a gridded stream as a picture, made of the rows that a subscriber gets, at the resolution it gets them.
import { h, replace, text } from "./dom.js";

const STOPS = [[68, 1, 84], [59, 82, 139], [33, 145, 140], [94, 201, 98], [253, 231, 37]];

/** A colour of the scale for a part of one. */
function colour(part) {
  const at = Math.min(Math.max(part, 0), 1) * (STOPS.length - 1);
  const low = Math.min(Math.floor(at), STOPS.length - 2);
  const mixed = STOPS[low].map((value, place) => Math.round(value + (STOPS[low + 1][place] - value) * (at - low)));
  return `rgb(${mixed.join(",")})`;
}

/** The least step between two of the values that are there. */
function stride(values) {
  const sorted = [...new Set(values)].sort((a, b) => a - b);
  let least = Infinity;
  for (let place = 1; place < sorted.length; place += 1) least = Math.min(least, sorted[place] - sorted[place - 1]);
  return Number.isFinite(least) ? least : 1;
}

export class FieldPicture {
  /** `grid` is the stream's: columns and sizes of x and y. */
  constructor(grid) {
    this.grid = grid;
    this.points = new Map();
    this.canvas = h("canvas", { class: "field", role: "img", "aria-label": "The field", width: 512, height: 512 });
    this.column = h("select", { onchange: () => this.draw() });
    this.scale = h("p", { class: "faint" });
    this.node = h("section", { class: "panel half", hidden: true }, h("div", { class: "row" }, h("h2", {}, "The field as it arrives"), h("label", { class: "end row" }, "Column", this.column)), this.canvas, this.scale);
  }

  /** Take in rows: the last value at each place counts. */
  add(rows) {
    const [x, y] = [this.grid.x.column, this.grid.y.column];
    for (const row of rows) {
      if (typeof row[x] === "number" && typeof row[y] === "number") this.points.set(`${row[x]},${row[y]}`, row);
    }
    if (!this.points.size) return;
    const [sample] = this.points.values();
    const columns = Object.keys(sample).filter((key) => typeof sample[key] === "number" && !["_seq", x, y].includes(key));
    replace(this.column, columns.join(), () => columns.map((each) => h("option", { value: each }, each)));
    this.node.hidden = !columns.length;
    this.draw();
  }

  draw() {
    const name = this.column.value;
    const [x, y] = [this.grid.x.column, this.grid.y.column];
    const rows = [...this.points.values()];
    const values = rows.map((row) => row[name]).filter((value) => typeof value === "number");
    if (!values.length) return;
    const [least, most] = [values.reduce((a, b) => Math.min(a, b)), values.reduce((a, b) => Math.max(a, b))];
    const [wide, high] = [Number(this.grid.x.size ?? 32), Number(this.grid.y.size ?? 32)];
    const [stepX, stepY] = [stride(rows.map((row) => row[x])), stride(rows.map((row) => row[y]))];
    const paint = this.canvas.getContext("2d");
    const [unitX, unitY] = [this.canvas.width / wide, this.canvas.height / high];
    paint.clearRect(0, 0, this.canvas.width, this.canvas.height);
    for (const row of rows) {
      if (typeof row[name] !== "number") continue;
      paint.fillStyle = colour((row[name] - least) / (most - least || 1));
      // The first row of a grid lies at the bottom.
      paint.fillRect(row[x] * unitX, this.canvas.height - (row[y] + stepY) * unitY, stepX * unitX, stepY * unitY);
    }
    const round = (value) => Number(value.toPrecision(3));
    const said = `${name} from ${round(least)} (dark) to ${round(most)} (bright); ${rows.length} of ${wide * high} points, every ${stepX === 1 && stepY === 1 ? "point" : `${stepX} by ${stepY} points`}`;
    text(this.scale, said);
    this.canvas.setAttribute("aria-label", said);
  }
}
