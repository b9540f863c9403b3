// The errors of the gateway, by what a caller does about them.
//
// Each has the gateway's `reason` (docs/errors.md), which is stable. The message is for people.

import { Metadata, status, type ServiceError } from "@grpc/grpc-js";

import { decodeStatus } from "./wire.js";

const DOMAIN = "provost";

export interface ErrorFacts {
  /** The status of gRPC. */
  readonly code: status;
  /** A word of docs/errors.md; empty if the error is not the gateway's own. */
  readonly reason: string;
  /** What the gateway says of the error: rule, field, stage, errno, path. */
  readonly metadata: Readonly<Record<string, string>>;
}

/** Any error of a call. */
export class ProvostError extends Error implements ErrorFacts {
  readonly code: status;
  readonly reason: string;
  readonly metadata: Readonly<Record<string, string>>;

  constructor(message: string, facts: Partial<ErrorFacts> = {}) {
    super(facts.reason ? `${facts.reason}: ${message}` : message);
    this.name = new.target.name;
    this.code = facts.code ?? status.UNKNOWN;
    this.reason = facts.reason ?? "";
    this.metadata = facts.metadata ?? {};
  }
}

/** Policy denies the command. */
export class Denied extends ProvostError {
  /** The rule that decided. */
  get rule(): string {
    return this.metadata["rule"] ?? "";
  }
}

/** A rule asks a person. Once approved, the same request runs. */
export class ApprovalRequired extends Denied {
  get approvalId(): string {
    return this.metadata["approval_id"] ?? "";
  }
}

/** A person said no, or nobody answered in time. */
export class ApprovalRefused extends Denied {
  get approvalId(): string {
    return this.metadata["approval_id"] ?? "";
  }
}

/** A field of the request is wrong. */
export class InvalidField extends ProvostError {
  get field(): string {
    return this.metadata["field"] ?? "";
  }
}

/** The session, terminal or approval does not exist for this caller. */
export class NotFound extends ProvostError {}

/** A quota or a limit is used up. */
export class QuotaReached extends ProvostError {}

/** The command could not be started; nothing ran. */
export class SpawnFailed extends ProvostError {
  /** The step that failed. */
  get stage(): string {
    return this.metadata["stage"] ?? "";
  }
}

/** The time of the call is over. */
export class DeadlineExceeded extends ProvostError {}

/** The caller has cancelled the call. */
export class Cancelled extends ProvostError {}

/** No gateway answered for as long as `reconnectForMs` says, or the call cannot be repeated. */
export class GatewayUnavailable extends ProvostError {}

/** Output was lost with the sandbox that held it, or dropped before it was read. */
export class OutputLost extends ProvostError {}

type Kind = new (message: string, facts: Partial<ErrorFacts>) => ProvostError;

const SPAWN_REASONS = [
  "COMMAND_NOT_FOUND",
  "NOT_EXECUTABLE",
  "PERMISSION_DENIED",
  "BAD_INTERPRETER",
  "CWD_GONE",
  "CWD_NOT_A_DIRECTORY",
  "ARGUMENT_LIST_TOO_LONG",
  "LIMIT_REACHED",
  "CONFINEMENT_UNAVAILABLE",
  "ROOT_GONE",
  "PROGRAM_CHANGED",
  "SECRET_UNAVAILABLE",
  "SANDBOX_LOST",
];

const BY_REASON: ReadonlyMap<string, Kind> = new Map<string, Kind>([
  ["POLICY_DENIED", Denied],
  ["APPROVAL_REQUIRED", ApprovalRequired],
  ["APPROVAL_DENIED", ApprovalRefused],
  ["APPROVAL_EXPIRED", ApprovalRefused],
  ["OUTPUT_LOST", OutputLost],
  ["DRAINING", GatewayUnavailable],
  ...SPAWN_REASONS.map((reason): [string, Kind] => [reason, SpawnFailed]),
]);

const BY_CODE: ReadonlyMap<status, Kind> = new Map<status, Kind>([
  [status.INVALID_ARGUMENT, InvalidField],
  [status.NOT_FOUND, NotFound],
  [status.RESOURCE_EXHAUSTED, QuotaReached],
  [status.DEADLINE_EXCEEDED, DeadlineExceeded],
  [status.UNAVAILABLE, GatewayUnavailable],
]);

/** What a connection that breaks off looks like, when the gateway has said nothing itself. */
const BROKEN_OFF: ReadonlySet<status> = new Set([
  status.UNAVAILABLE,
  status.INTERNAL,
  status.CANCELLED,
  status.UNKNOWN,
]);

/** The error that a status of gRPC stands for. */
export function fromService(error: ServiceError): ProvostError {
  const info = errorInfo(error.metadata);
  const facts = { code: error.code, reason: info?.reason ?? "", metadata: info?.metadata ?? {} };
  const kind = BY_REASON.get(facts.reason) ?? BY_CODE.get(error.code) ?? ProvostError;
  return new kind(error.details || error.message, facts);
}

/** Whether another gateway, or the same one a little later, may answer. */
export function isOutage(error: ProvostError): boolean {
  return error.reason ? error.reason === "DRAINING" : BROKEN_OFF.has(error.code);
}

function errorInfo(metadata: Metadata | undefined) {
  for (const value of metadata?.get("grpc-status-details-bin") ?? []) {
    if (typeof value === "string") continue;
    const info = decodeStatus(value).find(({ domain }) => domain === DOMAIN);
    if (info) return info;
  }
  return undefined;
}
