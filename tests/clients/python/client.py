"""grpcio: client.py ADDRESS WORKSPACE. Prints the name of each check that has passed."""

import sys

import grpc
from google.rpc import error_details_pb2
from grpc_reflection.v1alpha.proto_reflection_descriptor_database import ProtoReflectionDescriptorDatabase
from grpc_status import rpc_status

from provost.v1 import sessions_pb2, sessions_pb2_grpc, terminals_pb2, terminals_pb2_grpc

address, workspace = sys.argv[1:3]
channel = grpc.insecure_channel(address)
terminals = terminals_pb2_grpc.TerminalsStub(channel)

opened = sessions_pb2_grpc.SessionsStub(channel).CreateSession(sessions_pb2.CreateSessionRequest(roots=[workspace]))
session = opened.session.id
assert session.startswith("sess_")
print("unary")


def command(program, *args):
    return terminals_pb2.CreateTerminalRequest(session_id=session, program=program, args=args)


def refused(call, code):
    try:
        call()
    except grpc.RpcError as error:
        assert error.code() == code, error
        return error
    raise AssertionError("the call succeeded")


output = b""
for event in terminals.Run(terminals_pb2.RunRequest(create=command("seq", "100000"))):
    output += event.chunk.data
    finished = event.finished
assert output == b"".join(b"%d\n" % n for n in range(1, 100001))
assert finished.outcome.exit_code == 0
print("stream")

error = refused(lambda: terminals.CreateTerminal(command("no-such-program")), grpc.StatusCode.FAILED_PRECONDITION)
info = error_details_pb2.ErrorInfo()
assert rpc_status.from_call(error).details[0].Unpack(info)
assert (info.domain, info.reason) == ("provost", "COMMAND_NOT_FOUND")
print("details")

sleeper = terminals.CreateTerminal(command("sleep", "1000")).terminal.id
wait = terminals_pb2.WaitForExitRequest(terminal_id=sleeper)
refused(lambda: terminals.WaitForExit(wait, timeout=0.2), grpc.StatusCode.DEADLINE_EXCEEDED)
terminals.ReleaseTerminal(terminals_pb2.ReleaseTerminalRequest(terminal_id=sleeper))
print("deadline")

events = terminals.Run(terminals_pb2.RunRequest(create=command("sleep", "1000")))
assert next(events).started.id
events.cancel()
refused(lambda: next(events), grpc.StatusCode.CANCELLED)
listed = terminals_pb2.ListTerminalsRequest(session_id=session)
while terminals.ListTerminals(listed).terminals:
    pass
print("cancellation")

services = ProtoReflectionDescriptorDatabase(channel).get_services()
assert "provost.v1.Terminals" in services, services
print("reflection")
