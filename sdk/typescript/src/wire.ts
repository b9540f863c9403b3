// The messages on the wire: the methods of the API, and google.rpc.Status.

import { fromJSON, type MethodDefinition, type ServiceDefinition } from "@grpc/proto-loader";

import { description } from "./generated/description.js";

const RPC_STATUS = {
  nested: {
    Any: { fields: { typeUrl: { type: "string", id: 1 }, value: { type: "bytes", id: 2 } } },
    Status: {
      fields: {
        code: { type: "int32", id: 1 },
        message: { type: "string", id: 2 },
        details: { rule: "repeated", type: "Any", id: 3 },
      },
    },
    ErrorInfo: {
      fields: {
        reason: { type: "string", id: 1 },
        domain: { type: "string", id: 2 },
        metadata: { keyType: "string", type: "string", id: 3 },
      },
    },
    // A service makes the loader give a codec of each message.
    Codec: {
      methods: {
        Details: { requestType: "Status", responseType: "ErrorInfo" },
      },
    },
  },
};

const OPTIONS = { longs: Number, enums: String, defaults: true, oneofs: true } as const;
const api = fromJSON(description as Parameters<typeof fromJSON>[0], OPTIONS);
const rpc = fromJSON(RPC_STATUS as Parameters<typeof fromJSON>[0], OPTIONS);
const codec = (rpc["Codec"] as ServiceDefinition)["Details"] as MethodDefinition<object, object>;

/** A method of the API. */
export interface Method<Request, Response> {
  readonly path: string;
  readonly serialize: (request: Request) => Buffer;
  readonly deserialize: (bytes: Buffer) => Response;
}

/** Finds a method. The types are those of its messages in `generated`. */
export function method<Request extends object, Response extends object>(
  service: string,
  name: string,
): Method<Request, Response> {
  const definition = (api[`provost.v1.${service}`] as ServiceDefinition)[name];
  if (!definition) throw new Error(`the API has no ${service}.${name}`);
  const { path, requestSerialize, responseDeserialize } =
    definition as unknown as MethodDefinition<Request, Response>;
  return { path, serialize: requestSerialize, deserialize: responseDeserialize };
}

interface ErrorInfo {
  reason: string;
  domain: string;
  metadata: Record<string, string>;
}

/** The google.rpc.ErrorInfo of a google.rpc.Status. */
export function decodeStatus(bytes: Buffer): ErrorInfo[] {
  const { details } = codec.requestDeserialize(bytes) as { details: { typeUrl: string; value: Buffer }[] };
  return details
    .filter(({ typeUrl }) => typeUrl.endsWith("/google.rpc.ErrorInfo"))
    .map(({ value }) => codec.responseDeserialize(value) as ErrorInfo);
}
