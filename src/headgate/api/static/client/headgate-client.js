// Receives subscriptions of a Headgate deployment over one web socket: many on one connection, in order, each row once.
// The types are in headgate-client.d.ts.
//
// A delivery counts as dealt with when the loop asks for the next one; only then is it confirmed. After a cut, every
// subscription is opened again with the position of the last delivery that was dealt with, so that nothing is missing
// and nothing comes twice, and nothing counts as delivered that the application has not seen.

const FIRST_WAIT_MS = 250;
const BUSY = 503;
const BUSY_MS = 1000;

/** Why a subscription cannot be read (on). */
export class HeadgateError extends Error {
  constructor(problem) {
    super(problem.detail);
    this.name = "HeadgateError";
    this.problem = problem;
    this.status = problem.status;
    this.hint = problem.hint;
  }
}

class Reading {
  #client;
  #options;
  #queue = [];
  #parts = [];
  #handed = null;
  #waiting = null;
  #failure = null;
  #ended = false;

  constructor(client, subscription, options) {
    this.#client = client;
    this.#options = options;
    this.subscription = subscription;
    this.position = options.position;
  }

  // What to send to have it opened, null while a delivery is in the hands of the application: it may yet fail there.
  get opening() {
    if (this.#ended || this.#handed) return null;
    const { maxRows, peek } = this.#options;
    const message = { op: "open", subscription: this.subscription, ack: "client" };
    if (this.position !== undefined) message.position = this.position;
    if (maxRows !== undefined) message.max_rows = maxRows;
    if (peek) message.peek = true;
    return message;
  }

  // The connection has gone, and with it what the application has not taken yet: it comes again.
  cut() {
    this.#queue = [];
    this.#parts = [];
  }

  // One event of the server. The last event of a delivery has its position.
  hear(event) {
    this.#parts.push(event);
    if (event.position === undefined) return;
    const parts = this.#parts;
    this.#parts = [];
    const lost = parts.find((each) => each.event === "given-up");
    let givenUp = null;
    if (lost) {
      const { given_up, digest, shed, unevaluated, unsent, unsent_digest } = lost;
      givenUp = { given_up, digest, shed, unevaluated, unsent, unsent_digest };
    }
    const rows = parts.find((each) => each.event === "rows")?.rows ?? [];
    const { after, upto, position } = event;
    this.#queue.push({ rows, givenUp, after, upto, position });
    this.#settle();
  }

  fail(error) {
    this.#failure = error;
    this.#ended = true;
    this.#settle();
  }

  #settle() {
    if (!this.#waiting) return;
    const { resolve, reject } = this.#waiting;
    const delivery = this.#queue.shift();
    if (delivery) {
      this.#handed = delivery;
      this.#waiting = null;
      resolve({ value: delivery, done: false });
    } else if (this.#ended) {
      const failure = this.#failure;
      this.#failure = null;
      this.#waiting = null;
      if (failure) reject(failure);
      else resolve({ value: undefined, done: true });
    }
  }

  done() {
    if (!this.#handed) return;
    this.position = this.#handed.position;
    this.#handed = null;
    this.#client._done(this);
  }

  next() {
    if (this.#waiting) return Promise.reject(new Error("ask for one delivery at a time"));
    this.done();
    return new Promise((resolve, reject) => {
      this.#waiting = { resolve, reject };
      this.#settle();
    });
  }

  close() {
    if (this.#ended) return;
    this.#ended = true;
    this.#queue = [];
    this.#client._forget(this);
    this.#settle();
  }

  async return() {
    this.close();
    return { value: undefined, done: true };
  }

  [Symbol.asyncIterator]() {
    return this;
  }
}

/** One connection to a deployment. It connects with the first subscription, and again after a cut. */
export class HeadgateClient {
  #options;
  #socket = null;
  #readings = new Map();
  #opened = new Set();
  #closing = new Set();
  #retry = 0;
  #timer = null;

  constructor(url, options = {}) {
    const found = new URL(url ?? "/api/socket", url ? undefined : globalThis.location.href);
    found.protocol = found.protocol.replace("http", "ws");
    this.url = found.href;
    this.state = "waiting";
    this.#options = options;
  }

  subscribe(name, options = {}) {
    if (this.state === "closed") throw new Error("this client is closed");
    if (this.#readings.has(name)) throw new Error(`${name} is being read by this client already`);
    const reading = new Reading(this, name, options);
    this.#readings.set(name, reading);
    if (this.#socket?.readyState === 1) this.#open(reading);
    else if (!this.#socket && !this.#timer) this.#connect();
    return reading;
  }

  close() {
    clearTimeout(this.#timer);
    this.#say("closed");
    const socket = this.#socket;
    this.#socket = null;
    for (const reading of [...this.#readings.values()]) reading.close();
    // Closing a socket that is being opened would count as a failure: it is closed when it is open.
    if (socket?.readyState === 0) socket.onopen = () => socket.close();
    else socket?.close();
  }

  // The application has dealt with a delivery of a reading.
  _done(reading) {
    const name = reading.subscription;
    if (this.#opened.has(name)) this.#send({ op: "confirm", subscription: name, position: reading.position });
    else if (this.#socket?.readyState === 1) this.#open(reading);
  }

  _forget(reading) {
    const name = reading.subscription;
    if (this.#readings.get(name) === reading) this.#readings.delete(name);
    if (!this.#opened.delete(name)) return;
    this.#closing.add(name);
    this.#send({ op: "close", subscription: name });
  }

  #say(state) {
    if (this.state === state || this.state === "closed") return;
    this.state = state;
    this.#options.onState?.(state);
  }

  #send(message) {
    if (this.#socket?.readyState === 1) this.#socket.send(JSON.stringify(message));
  }

  #open(reading) {
    const message = reading.opening;
    if (!message || this.#opened.has(reading.subscription) || this.#closing.has(reading.subscription)) return;
    this.#opened.add(reading.subscription);
    this.#send(message);
  }

  #connect() {
    this.#timer = null;
    this.#say("connecting");
    const make = this.#options.connect ?? ((url) => new WebSocket(url));
    const socket = (this.#socket = make(this.url));
    socket.onopen = () => {
      this.#say("open");
      for (const reading of this.#readings.values()) this.#open(reading);
    };
    socket.onmessage = (message) => {
      if (socket === this.#socket) this.#hear(JSON.parse(message.data));
    };
    socket.onclose = () => {
      if (socket === this.#socket) this.#again();
    };
  }

  // The connection is gone: try again after a while, a longer one each time.
  #again() {
    this.#socket = null;
    this.#opened.clear();
    this.#closing.clear();
    for (const reading of this.#readings.values()) reading.cut();
    if (this.state === "closed") return;
    this.#say("waiting");
    const most = this.#options.longestWaitMs ?? 5000;
    const wait = Math.min(most, FIRST_WAIT_MS * 2 ** this.#retry++) * (0.5 + Math.random() / 2);
    if (this.#readings.size) this.#timer = setTimeout(() => this.#connect(), wait);
  }

  #hear(event) {
    const name = event.subscription;
    const reading = this.#readings.get(name);
    if (event.event === "opened") this.#retry = 0;
    else if (event.event === "closed") this.#closed(name, reading);
    else if (event.event === "error") this.#failed(event.problem, name, reading);
    else if (reading && this.#opened.has(name)) reading.hear(event);
  }

  #closed(name, reading) {
    const asked = this.#closing.delete(name);
    if (!reading) return;
    if (asked) this.#open(reading);
    else if (this.#opened.has(name)) this.#reopen(reading);
  }

  // The server has ended a reading, because it stops or is busy: it is asked again, and says so if there is nothing.
  #reopen(reading) {
    this.#opened.delete(reading.subscription);
    reading.cut();
    setTimeout(() => {
      const current = this.#readings.get(reading.subscription) === reading;
      if (current && this.#socket?.readyState === 1) this.#open(reading);
    }, BUSY_MS);
  }

  #failed(problem, name, reading) {
    if (!reading || !this.#opened.has(name)) return;
    if (problem.status === BUSY) {
      this.#reopen(reading);
      return;
    }
    this.#readings.delete(name);
    this.#opened.delete(name);
    reading.fail(new HeadgateError(problem));
  }
}
