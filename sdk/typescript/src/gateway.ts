// A gateway: sessions and approvals.

import { randomUUID } from "node:crypto";
import { resolve } from "node:path";

import { Connection } from "./connection.js";
import { Cancelled, GatewayUnavailable, ProvostError, isOutage } from "./errors.js";
import type { CreateSessionRequest } from "./generated/provost/v1/CreateSessionRequest.js";
import type { CreateSessionResponse__Output } from "./generated/provost/v1/CreateSessionResponse.js";
import type { ListApprovalsRequest } from "./generated/provost/v1/ListApprovalsRequest.js";
import type { ListApprovalsResponse__Output } from "./generated/provost/v1/ListApprovalsResponse.js";
import type { ResolveApprovalRequest } from "./generated/provost/v1/ResolveApprovalRequest.js";
import type { ResolveApprovalResponse__Output } from "./generated/provost/v1/ResolveApprovalResponse.js";
import type { WatchApprovalsRequest } from "./generated/provost/v1/WatchApprovalsRequest.js";
import type { WatchApprovalsResponse__Output } from "./generated/provost/v1/WatchApprovalsResponse.js";
import { Session } from "./session.js";
import { approvalOf, envOf, type Approval, type SessionOptions } from "./types.js";
import { method } from "./wire.js";

const CREATE = method<CreateSessionRequest, CreateSessionResponse__Output>("Sessions", "CreateSession");
const LIST = method<ListApprovalsRequest, ListApprovalsResponse__Output>("Approvals", "ListApprovals");
const WATCH = method<WatchApprovalsRequest, WatchApprovalsResponse__Output>("Approvals", "WatchApprovals");
const RESOLVE = method<ResolveApprovalRequest, ResolveApprovalResponse__Output>("Approvals", "ResolveApproval");

export interface GatewayOptions {
  /** `unix:PATH`; else what `$PROVOST_GATEWAY` says, else where a gateway listens by default. */
  readonly address?: string;
  /** How long a call waits for a gateway that has gone away; 30 s by default. */
  readonly reconnectForMs?: number;
}

export interface Answer {
  readonly comment?: string;
  /** The person for whom the caller answers. */
  readonly onBehalfOf?: string;
}

export class Gateway implements Disposable {
  readonly #connection: Connection;

  constructor({ address, reconnectForMs = 30_000 }: GatewayOptions = {}) {
    this.#connection = new Connection(address, reconnectForMs);
  }

  /** Opens a session whose commands may write to the directories `roots`. The first is the workspace. */
  async openSession(roots: readonly string[], options: SessionOptions = {}): Promise<Session> {
    const request: CreateSessionRequest = {
      roots: roots.map((root) => resolve(root)),
      cwd: options.cwd ?? "",
      env: envOf(options.env),
      labels: { ...options.labels },
      profile: options.profile ?? "",
      lifetime: options.endsWithProcess === false ? "LIFETIME_EXPLICIT" : "LIFETIME_OWNER_PROCESS",
      requestId: randomUUID(),
    };
    const { session } = await this.#connection.call(CREATE, request);
    return this.session(session!.id);
  }

  /** A session that exists. */
  session(id: string): Session {
    return new Session(this.#connection, id);
  }

  /** The approvals that this caller may see, oldest first. */
  async approvals({ sessionId = "", pendingOnly = true } = {}): Promise<Approval[]> {
    const found: Approval[] = [];
    let pageToken = "";
    do {
      const page = await this.#connection.call(LIST, { sessionId, pendingOnly, pageToken });
      found.push(...page.approvals.map(approvalOf));
      pageToken = page.nextPageToken;
    } while (pageToken);
    return found;
  }

  /** The pending and approved approvals, and then every change, also those after a restart of the gateway. */
  async *watchApprovals(
    options: { sessionId?: string; signal?: AbortSignal } = {},
  ): AsyncGenerator<Approval, void, void> {
    const { sessionId = "", signal } = options;
    const outage = this.#connection.outage();
    for (;;) {
      let failure: ProvostError = new GatewayUnavailable("the gateway has ended the stream");
      try {
        for await (const { approval } of this.#connection.stream(WATCH, { sessionId }, signal)) {
          outage.over();
          yield approvalOf(approval!);
        }
        // With a session, the session has been closed.
        if (sessionId) return;
      } catch (error) {
        if (!(error instanceof ProvostError) || !isOutage(error) || error instanceof Cancelled) throw error;
        failure = error;
      }
      await outage.wait(failure, signal);
    }
  }

  /** Lets the request run, once. */
  approve(approvalId: string, answer: Answer = {}): Promise<Approval> {
    return this.#resolve(approvalId, "APPROVAL_DECISION_APPROVE", answer);
  }

  /** Refuses the request. */
  deny(approvalId: string, answer: Answer = {}): Promise<Approval> {
    return this.#resolve(approvalId, "APPROVAL_DECISION_DENY", answer);
  }

  async #resolve(
    approvalId: string,
    decision: "APPROVAL_DECISION_APPROVE" | "APPROVAL_DECISION_DENY",
    { comment = "", onBehalfOf = "" }: Answer,
  ): Promise<Approval> {
    const request = { approvalId, decision, comment, onBehalfOf };
    const { approval } = await this.#connection.callOnce(RESOLVE, request);
    return approvalOf(approval!);
  }

  /** Closes the connection. Sessions and terminals live on. */
  close(): void {
    this.#connection.close();
  }

  [Symbol.dispose](): void {
    this.close();
  }
}
