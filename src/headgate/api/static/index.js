"use strict";
// Shows the status of the deployment, read again every two seconds.
const number = (value) => (value === null || value === undefined ? "" : value.toLocaleString("en"));

function fill(id, headings, rows) {
  const table = document.getElementById(id);
  table.replaceChildren();
  const head = table.createTHead().insertRow();
  for (const heading of headings) {
    const cell = document.createElement("th");
    cell.scope = "col";
    cell.textContent = heading;
    head.append(cell);
  }
  const body = table.createTBody();
  for (const row of rows) {
    const line = body.insertRow();
    for (const value of row) line.insertCell().textContent = typeof value === "number" ? number(value) : value ?? "";
  }
}

function show(status) {
  const wrong = status.findings.filter((each) => each.wrong);
  const state = document.getElementById("state");
  state.className = wrong.length ? "wrong" : "";
  state.textContent = wrong.length
    ? `${wrong.length} thing${wrong.length === 1 ? " is" : "s are"} wrong`
    : `The service is ${status.service.state}; every row is accounted for.`;
  document.getElementById("findings").parentElement.hidden = !status.findings.length;
  document.getElementById("findings").replaceChildren(...status.findings.map((each) => {
    const item = document.createElement("li");
    item.textContent = each.hint ? `${each.message} (${each.hint})` : each.message;
    item.className = each.wrong ? "wrong" : "";
    return item;
  }));
  fill("streams", ["stream", "root", "state", "rows in", "dead", "shed", "evaluated", "difference"],
    Object.entries(status.streams).map(([name, each]) =>
      [name, each.root, each.state, each.rows_in, each.dead, each.shed, each.evaluated, each.difference]));
  fill("sites", ["site", "bytes up", "bytes down", "queued rows", "level"],
    Object.entries(status.sites).map(([name, each]) =>
      [name, each.upload_bytes, each.download_bytes, each.queued_rows, each.level]));
  fill("subscriptions", ["subscription", "stream", "site", "matched", "delivered", "reduced", "expired", "in flight", "difference"],
    Object.entries(status.subscriptions).slice(0, 200).map(([name, each]) =>
      [name, each.stream, each.site, each.matched, each.delivered, each.reduced, each.expired, each.in_flight, each.difference]));
}

async function look() {
  try {
    const answer = await fetch("/api/status");
    if (!answer.ok) throw new Error((await answer.json()).detail);
    show(await answer.json());
  } catch (error) {
    document.getElementById("state").textContent = String(error.message);
  }
  setTimeout(look, 2000);
}
look();
