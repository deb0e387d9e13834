// Numbers and times as people read them. What is not known is a dash.
const NONE = "–";
const whole = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });
const short = new Intl.NumberFormat("en", { notation: "compact", maximumFractionDigits: 1 });

/** @param {number|null|undefined} value */
export const count = (value) => (value == null ? NONE : Math.abs(value) >= 1e6 ? short.format(value) : whole.format(value));

/** @param {number|null|undefined} value a rate of rows or messages */
export const perSecond = (value) =>
  value == null ? NONE : `${value >= 100 ? whole.format(value) : value.toFixed(value && value < 10 ? 1 : 0)}/s`;

/** A figure that may be larger. */
export const atLeast = (words) => `≥ ${words}`;

/** @param {number|null|undefined} bytesPerS as bits, which bandwidths are written in */
export function bits(bytesPerS) {
  if (bytesPerS == null) return NONE;
  const value = bytesPerS * 8;
  if (value < 1000) return `${value.toFixed(0)} bit/s`;
  if (value < 1e6) return `${(value / 1e3).toFixed(value < 1e4 ? 1 : 0)} kbit/s`;
  return `${(value / 1e6).toFixed(value < 1e7 ? 1 : 0)} Mbit/s`;
}

/** @param {number|null|undefined} value */
export function bytes(value) {
  if (value == null) return NONE;
  const units = ["B", "kB", "MB", "GB", "TB"];
  let place = 0;
  while (Math.abs(value) >= 1000 && place < units.length - 1) {
    value /= 1000;
    place += 1;
  }
  return `${value.toFixed(place && value < 100 ? 1 : 0)} ${units[place]}`;
}

/** @param {number|null|undefined} value a part of one */
export const percent = (value) =>
  value == null ? NONE : `${(100 * value).toFixed(value > 0 && value < 0.1 ? 1 : 0)} %`;

/** @param {number|null|undefined} value */
export const quality = (value) => (value == null ? NONE : value.toFixed(2));

/** @param {number|null|undefined} value in seconds */
export function seconds(value) {
  if (value == null) return NONE;
  if (value < 0.0995) return `${(value * 1000).toFixed(value < 0.00995 ? 1 : 0)} ms`;
  if (value < 120) return `${value.toFixed(value < 10 ? 2 : 0)} s`;
  return value < 7200 ? `${(value / 60).toFixed(0)} min` : `${(value / 3600).toFixed(1)} h`;
}

/** @param {number|null|undefined} ms since 1970 */
export const clock = (ms) => (ms == null ? NONE : new Date(ms).toLocaleTimeString("en-GB"));

/** @param {number} many @param {string} one @param {string} [more] */
export const several = (many, one, more) => `${count(many)} ${many === 1 ? one : (more ?? `${one}s`)}`;

/** @param {string} link as the API names it */
export const arrow = (link) => link.replace("->", " → ");
