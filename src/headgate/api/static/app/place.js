// The address of a page: which page, of what, and with which settings, so that a link shows what was seen.

/** What the address says; an unknown page is the overview. */
export function place(pages = null) {
  const [path, query] = location.hash.replace(/^#\/?/, "").split("?");
  const [name, ...rest] = path.split("/");
  return {
    name: pages === null || name in pages ? name : "",
    subject: rest.length ? decodeURIComponent(rest.join("/")) : null,
    settings: new URLSearchParams(query ?? ""),
  };
}

/** An address, with the settings that have a value. */
export function address(name, subject = null, settings = {}) {
  const kept = new URLSearchParams(Object.entries(settings).filter(([, value]) => value !== "" && value !== null && value !== undefined && value !== false));
  const path = subject === null ? name : `${name}/${encodeURIComponent(subject)}`;
  return `#/${path}${kept.size ? `?${kept}` : ""}`;
}

/** Change the settings in the address without leaving the page. */
export function remember(settings) {
  const { name, subject } = place();
  history.replaceState(null, "", address(name, subject, settings));
}
