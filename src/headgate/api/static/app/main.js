// The frame of the dashboard: which page is shown, how often it is refreshed, and whether all is well.
import { overview, user } from "./api.js";
import { attribute, h, text } from "./dom.js";
import { clock, several } from "./format.js";
import { trouble } from "./parts.js";
import { place } from "./place.js";

const EVERY_PAGE = {
  "": () => import("./pages/overview.js"),
  sites: () => import("./pages/sites.js"),
  subscriptions: () => import("./pages/subscriptions.js"),
  subscription: () => import("./pages/subscription.js"),
  new: () => import("./pages/create.js"),
  streams: () => import("./pages/streams.js"),
  plan: () => import("./pages/plan.js"),
  why: () => import("./pages/why.js"),
};
// A user who is no operator has the pages of its own subscriptions.
const PAGES = user === null ? EVERY_PAGE : { "": EVERY_PAGE.subscriptions, ...Object.fromEntries(["subscriptions", "subscription", "new", "why"].map((name) => [name, EVERY_PAGE[name]])) };
const TOP = { subscription: "subscriptions", new: "subscriptions", "": user === null ? "" : "subscriptions" };
const REFRESH_MS = 1000;
const PULSE_MS = 3000;
const PATIENCE_MS = 700;

const main = document.getElementById("main");
let page = null;
let turn = 0;
let failing = null;

async function show(focus) {
  const mine = ++turn;
  const at = place(PAGES);
  page?.stop?.();
  page = null;
  attribute(main, "data-fresh", null);
  for (const link of document.querySelectorAll("#pages a")) {
    const name = link.getAttribute("href").replace(/^#\/?/, "");
    attribute(link, "aria-current", name === (TOP[at.name] ?? at.name) ? "page" : null);
  }
  try {
    const module = await PAGES[at.name]();
    if (mine !== turn) return;
    const made = await module.make(at);
    if (mine !== turn) {
      made.stop?.();
      return;
    }
    document.title = made.title ? `${made.title} · Headgate` : "Headgate";
    // The page before stays until this one has something to show, so that nothing jumps.
    made.node.classList.add("coming");
    main.append(made.node);
    await Promise.race([Promise.resolve(made.refresh?.()).catch(() => null), new Promise((done) => setTimeout(done, PATIENCE_MS))]);
    if (mine !== turn) {
      made.stop?.();
      made.node.remove();
      return;
    }
    page = made;
    made.node.classList.remove("coming");
    main.replaceChildren(made.node);
  } catch (error) {
    main.replaceChildren(h("h1", {}, "This page cannot be shown"), trouble(error));
  }
  if (focus) {
    main.focus({ preventScroll: true });
    scrollTo(0, 0);
  }
  refresh(mine);
}

async function refresh(mine) {
  while (mine === turn && page) {
    const began = performance.now();
    if (!document.hidden) {
      try {
        await page.refresh?.();
        if (mine === turn) attribute(main, "data-fresh", "");
        failing?.remove();
        failing = null;
      } catch (error) {
        if (mine !== turn) return;
        failing?.remove();
        failing = trouble(error);
        main.prepend(failing);
      }
    }
    await new Promise((done) => setTimeout(done, Math.max(200, (page?.every ?? REFRESH_MS) - (performance.now() - began))));
  }
}

async function pulse() {
  const dot = document.querySelector("#pulse .dot");
  const words = document.getElementById("pulse-text");
  try {
    const found = await overview();
    const wrong = found.findings.filter((each) => each.wrong).length;
    const unwell = found.states.difference + found.states.below;
    const running = found.service.state === "running";
    attribute(dot, "class", `dot ${wrong || !running ? "bad" : unwell || found.states.less ? "warn" : "good"}`);
    text(words, !running ? `The service is ${found.service.state}` : wrong ? `${several(wrong, "thing")} wrong` : unwell ? `${several(unwell, "contract")} not met` : "All is well");
    text(document.getElementById("footer"), `${user === null ? "" : `You are ${user} · `}Revision ${found.revision} · as of ${clock(found.time_ms)}`);
  } catch (error) {
    attribute(dot, "class", "dot bad");
    text(words, error.status === 401 ? "The session has ended: `headgate login`" : "No connection");
  }
  setTimeout(pulse, PULSE_MS);
}

const THEMES = ["system", "light", "dark"];
const button = document.getElementById("theme");
function theme(name) {
  attribute(document.documentElement, "data-theme", name === "system" ? null : name);
  text(button, `Theme: ${name}`);
  dispatchEvent(new Event("themechange"));
}
button.addEventListener("click", () => {
  const now = localStorage.getItem("headgate-theme") ?? "system";
  const next = THEMES[(THEMES.indexOf(now) + 1) % THEMES.length];
  localStorage.setItem("headgate-theme", next);
  theme(next);
});
theme(localStorage.getItem("headgate-theme") ?? "system");
addEventListener("hashchange", () => show(true));
document.querySelector(".skip").addEventListener("click", (event) => {
  event.preventDefault();
  main.focus();
});
show(false);
pulse();
