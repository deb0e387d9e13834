// Making and changing elements. What has not changed is not touched, so that a page that updates every second is cheap.
const SVG = "http://www.w3.org/2000/svg";

function fill(node, attributes, children) {
  for (const [key, value] of Object.entries(attributes ?? {})) {
    if (value === null || value === undefined || value === false) continue;
    if (key.startsWith("on")) node.addEventListener(key.slice(2), value);
    else if (key === "value" || key === "checked" || key === "disabled") node[key] = value;
    else node.setAttribute(key, value === true ? "" : String(value));
  }
  for (const child of children.flat(2)) if (child !== null && child !== undefined && child !== false) node.append(child);
  return node;
}

/** An element with attributes (`on…` are listeners) and children. */
export const h = (name, attributes, ...children) => fill(document.createElement(name), attributes, children);

/** The same for SVG. */
export const svg = (name, attributes, ...children) => fill(document.createElementNS(SVG, name), attributes, children);

/** Set the text of a node if it is another. */
export function text(node, value) {
  const wanted = String(value);
  if (node.textContent !== wanted) node.textContent = wanted;
}

/** Set an attribute if it is another; null takes it off. */
export function attribute(node, name, value) {
  if (value === null || value === undefined) {
    if (node.hasAttribute(name)) node.removeAttribute(name);
  } else if (node.getAttribute(name) !== String(value)) node.setAttribute(name, String(value));
}

/** Replace the children of a node if `key` is not that of the last time. */
export function replace(node, key, make) {
  if (node._key === key) return;
  node._key = key;
  node.replaceChildren(...[make()].flat());
}

/** Nodes by key: made once, put in order, taken out when their key is gone. */
export class Keyed {
  constructor(parent, make, update) {
    this.parent = parent;
    this.make = make;
    this.update = update;
    this.nodes = new Map();
  }

  show(items, keyOf) {
    const gone = new Set(this.nodes.keys());
    let before = this.parent.firstElementChild;
    for (const item of items) {
      const key = keyOf(item);
      let node = this.nodes.get(key);
      if (!node) {
        node = this.make(item);
        this.nodes.set(key, node);
      }
      gone.delete(key);
      this.update(node, item);
      if (node === before) before = before.nextElementSibling;
      else this.parent.insertBefore(node, before);
    }
    for (const key of gone) {
      this.nodes.get(key).remove();
      this.nodes.delete(key);
    }
  }
}

/**
 * A table whose cells are patched. Columns: {title, key?, text?(item), node?(item), tone?(item), left?, sort?, wrap?}.
 * `sort` is what the server calls the column; `onSort` hears it.
 */
export class Table {
  constructor(caption, columns, { onSort = null, keyOf = (item) => item.name } = {}) {
    this.columns = columns;
    this.keyOf = keyOf;
    this.heads = columns.map((column) => {
      const head = h("th", { scope: "col", class: column.left ? "text" : null });
      if (column.sort && onSort) head.append(h("button", { type: "button", onclick: () => onSort(column.sort) }, column.title));
      else head.append(column.title);
      return head;
    });
    this.body = h("tbody");
    this.table = h("table", {}, h("caption", { class: "sr" }, caption), h("thead", {}, h("tr", {}, this.heads)), this.body);
    this.node = h("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": caption }, this.table);
    this.rows = new Keyed(this.body, () => this.#row(), (row, item) => this.#patch(row, item));
  }

  #row() {
    return h("tr", {}, this.columns.map((column, place) => {
      const name = [column.left ? "text" : "", column.wrap ? "wrap" : ""].join(" ").trim() || null;
      return place === 0 ? h("th", { scope: "row", class: name }) : h("td", { class: name });
    }));
  }

  #patch(row, item) {
    this.columns.forEach((column, place) => {
      const cell = row.children[place];
      const value = column.text ? column.text(item) : item[column.key];
      if (column.node) replace(cell, `${value}`, () => column.node(item));
      else text(cell, value ?? "–");
    });
  }

  sorted(name, descending) {
    this.columns.forEach((column, place) => {
      attribute(this.heads[place], "aria-sort", column.sort === name ? (descending ? "descending" : "ascending") : null);
    });
  }

  show(items) {
    this.rows.show(items, this.keyOf);
  }
}

/** Let the browser do what is more urgent. */
export const breathe = () => new Promise((done) => setTimeout(done));

/** Run something once the last call is `ms` ago. */
export function settled(ms, work) {
  let timer = 0;
  return (...given) => {
    clearTimeout(timer);
    timer = setTimeout(() => work(...given), ms);
  };
}
