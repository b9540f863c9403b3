// A connection to a gateway: its calls, and what happens while no gateway answers.
//
// A call that can be repeated is repeated until a gateway answers or the time is over. A call that cannot is not.

import { setTimeout as sleep } from "node:timers/promises";

import { Client, credentials, type ServiceError } from "@grpc/grpc-js";

import { Cancelled, GatewayUnavailable, fromService, isOutage, type ProvostError } from "./errors.js";
import type { Method } from "./wire.js";

/** The variable that names a gateway, as for `provost run`. */
const VARIABLE = "PROVOST_GATEWAY";
const MESSAGE_BYTES_MAX = 64 << 20;
const WAIT_MIN_MS = 20;
const WAIT_MAX_MS = 500;

/** Where `provost serve` listens if it is not told otherwise. */
export function defaultAddress(): string {
  const named = process.env[VARIABLE];
  if (named) return named;
  const uid = process.geteuid?.() ?? 0;
  if (uid === 0) return "unix:/run/provost/provost.sock";
  const runtime = process.env["XDG_RUNTIME_DIR"] ?? "";
  const directory = runtime.startsWith("/") ? `${runtime}/provost` : `/tmp/provost-${uid}`;
  return `unix:${directory}/provost.sock`;
}

export interface CallOptions {
  /** How long the call may take. */
  readonly timeoutMs?: number | undefined;
  readonly signal?: AbortSignal | undefined;
}

/** A call with messages in both directions. It ends when nobody reads its responses any more. */
export interface Duplex<Request, Response> {
  readonly send: (request: Request) => void;
  readonly responses: AsyncGenerator<Response, void, void>;
}

/** A channel to a gateway and to those that come after it at the same address. */
export class Connection {
  readonly #client: Client;
  readonly #reconnectForMs: number;

  constructor(address: string | undefined, reconnectForMs: number) {
    this.#reconnectForMs = reconnectForMs;
    this.#client = new Client(address ?? defaultAddress(), credentials.createInsecure(), {
      "grpc.max_receive_message_length": MESSAGE_BYTES_MAX,
      "grpc.initial_reconnect_backoff_ms": 20,
      "grpc.max_reconnect_backoff_ms": 500,
      // Little is on the way: a gateway that dies still has it (docs/internals/decisions/0194).
      "grpc-node.flow_control_window": 256 << 10,
      // Repeating is decided here.
      "grpc.enable_retries": 0,
    });
  }

  close(): void {
    this.#client.close();
  }

  outage(): Outage {
    return new Outage(this.#reconnectForMs);
  }

  /** Calls a method with one response. It must be as good to do it twice as once. */
  async call<Request, Response>(
    method: Method<Request, Response>,
    request: Request,
    options: CallOptions = {},
  ): Promise<Response> {
    const outage = this.outage();
    for (;;) {
      try {
        return await this.#unary(method, request, options);
      } catch (error) {
        const failure = failureOf(error, options.signal);
        if (!isOutage(failure) || failure instanceof Cancelled) throw failure;
        await outage.wait(failure, options.signal);
      }
    }
  }

  /** Calls a method that must not be done twice. */
  async callOnce<Request, Response>(
    method: Method<Request, Response>,
    request: Request,
    options: CallOptions = {},
  ): Promise<Response> {
    try {
      return await this.#unary(method, request, options);
    } catch (error) {
      const failure = failureOf(error, options.signal);
      throw isOutage(failure) && !(failure instanceof Cancelled) ? unavailable(failure) : failure;
    }
  }

  /** Calls a method with many responses, once. */
  async *stream<Request, Response>(
    method: Method<Request, Response>,
    request: Request,
    signal?: AbortSignal,
  ): AsyncGenerator<Response, void, void> {
    const call = this.#client.makeServerStreamRequest(
      method.path,
      method.serialize,
      method.deserialize,
      request,
    );
    const cancel = () => call.cancel();
    signal?.addEventListener("abort", cancel, { once: true });
    if (signal?.aborted) cancel();
    try {
      yield* call as AsyncIterable<Response>;
    } catch (error) {
      throw failureOf(error, signal);
    } finally {
      signal?.removeEventListener("abort", cancel);
      // Of a call that has been left early the end is not asked for any more.
      call.on("error", () => {});
      call.cancel();
    }
  }

  /** Opens a call with messages in both directions, once. What is sent after its end is dropped. */
  duplex<Request, Response>(method: Method<Request, Response>, signal?: AbortSignal): Duplex<Request, Response> {
    const call = this.#client.makeBidiStreamRequest(method.path, method.serialize, method.deserialize);
    const cancel = () => call.cancel();
    async function* responses(): AsyncGenerator<Response, void, void> {
      signal?.addEventListener("abort", cancel, { once: true });
      if (signal?.aborted) cancel();
      try {
        yield* call as AsyncIterable<Response>;
      } catch (error) {
        throw failureOf(error, signal);
      } finally {
        signal?.removeEventListener("abort", cancel);
        call.on("error", () => {});
        call.cancel();
      }
    }
    return { send: (request) => void call.write(request), responses: responses() };
  }

  #unary<Request, Response>(
    method: Method<Request, Response>,
    request: Request,
    { timeoutMs, signal }: CallOptions,
  ): Promise<Response> {
    return new Promise((resolve, reject) => {
      const deadline = timeoutMs === undefined ? {} : { deadline: Date.now() + timeoutMs };
      const call = this.#client.makeUnaryRequest(
        method.path,
        method.serialize,
        method.deserialize,
        request,
        deadline,
        (error, response) => {
          signal?.removeEventListener("abort", cancel);
          if (error) reject(error);
          else resolve(response as Response);
        },
      );
      const cancel = () => call.cancel();
      signal?.addEventListener("abort", cancel, { once: true });
      if (signal?.aborted) cancel();
    });
  }
}

/** The time in which no gateway answers, from the first failure on. */
export class Outage {
  #since: number | undefined;
  #waitMs = WAIT_MIN_MS;
  readonly #limitMs: number;

  constructor(limitMs: number) {
    this.#limitMs = limitMs;
  }

  /** A gateway has answered. */
  over(): void {
    this.#since = undefined;
    this.#waitMs = WAIT_MIN_MS;
  }

  /** Waits before the next attempt. Throws `GatewayUnavailable` when the time is over. */
  async wait(failure: ProvostError, signal?: AbortSignal): Promise<void> {
    const now = performance.now();
    this.#since ??= now;
    if (now - this.#since >= this.#limitMs) throw unavailable(failure);
    try {
      await sleep(this.#waitMs, undefined, signal ? { signal } : {});
    } catch {
      throw new Cancelled("the caller has cancelled the call");
    }
    this.#waitMs = Math.min(this.#waitMs * 2, WAIT_MAX_MS);
  }
}

function failureOf(error: unknown, signal: AbortSignal | undefined): ProvostError {
  if (signal?.aborted) return new Cancelled("the caller has cancelled the call");
  return fromService(error as ServiceError);
}

function unavailable(failure: ProvostError): GatewayUnavailable {
  return new GatewayUnavailable(failure.message, failure);
}
