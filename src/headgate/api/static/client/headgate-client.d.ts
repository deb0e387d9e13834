/** Receives subscriptions of a Headgate deployment over one web socket: many on one connection, in order, each row once. */

/** A row as JSON has it, with its sequence number as `_seq`: times in ISO 8601, decimals as text, bytes in base64. */
export interface Row {
  readonly _seq: number;
  readonly [column: string]: unknown;
}

/** What was given up in the range of a delivery. */
export interface GivenUp {
  /** Rows of this subscription that a policy gave up, by reason. */
  readonly given_up?: Readonly<Record<string, number>>;
  /** What the policy's digesters say about them. */
  readonly digest?: Readonly<Record<string, unknown>>;
  /** Rows that admission control gave up before they were matched: nobody knows whose they were. */
  readonly shed?: number;
  readonly unevaluated?: number;
  /** Rows that senders gave up before they came, by reason. */
  readonly unsent?: Readonly<Record<string, number>>;
  readonly unsent_digest?: Readonly<Record<string, unknown>>;
}

/** Rows with the range (after, upto] of the stream that they cover. */
export interface Delivery<R extends Row = Row> {
  readonly rows: readonly R[];
  /** What was given up in the range, null where nothing was. */
  readonly givenUp: GivenUp | null;
  readonly after: number;
  readonly upto: number;
  /** Store it with what you did with the rows, and resume with it: every row exactly once. */
  readonly position: string;
}

/** A problem document (RFC 9457). */
export interface Problem {
  readonly type: string;
  readonly title: string;
  readonly status: number;
  readonly detail: string;
  readonly hint?: string;
}

/** Why a subscription cannot be read (on): it does not exist, another reader has taken over, rows are no longer kept. */
export class HeadgateError extends Error {
  constructor(problem: Problem);
  readonly problem: Problem;
  readonly status: number;
  readonly hint: string | undefined;
}

export interface SubscribeOptions {
  /** Read on after this position; otherwise from what was last acknowledged. */
  position?: string;
  /** How many rows a delivery has at most: 1 to 10,000, 200 where nothing is said. */
  maxRows?: number;
  /** Read along, take over from nobody and acknowledge nothing. */
  peek?: boolean;
}

/** One subscription being read. A delivery counts as dealt with when the loop asks for the next one. */
export interface Reading<R extends Row = Row> extends AsyncIterableIterator<Delivery<R>> {
  readonly subscription: string;
  /** The position of the last delivery that was dealt with. */
  readonly position: string | undefined;
  next(): Promise<IteratorResult<Delivery<R>, undefined>>;
  /** The last delivery was dealt with, also if the loop asks for no other. */
  done(): void;
  /** Read no more. A loop over it ends. */
  return(): Promise<IteratorResult<Delivery<R>, undefined>>;
  close(): void;
}

export type ConnectionState = "connecting" | "open" | "waiting" | "closed";

export interface ClientOptions {
  /** Makes a socket; for programs outside of a browser, which have to send a bearer token. */
  connect?: (url: string) => WebSocket;
  /** Hears when the connection comes and goes. */
  onState?: (state: ConnectionState) => void;
  /** The longest wait before another try to connect, in milliseconds; 5,000 where nothing is said. */
  longestWaitMs?: number;
}

/** One connection to a deployment. It connects with the first subscription, and again after a cut. */
export class HeadgateClient {
  /** @param url as `ws://127.0.0.1:8787/api/socket`; that of the page where nothing is given. */
  constructor(url?: string | URL, options?: ClientOptions);
  readonly url: string;
  readonly state: ConnectionState;
  subscribe<R extends Row = Row>(name: string, options?: SubscribeOptions): Reading<R>;
  /** Close the connection and end every loop over a subscription. */
  close(): void;
}
