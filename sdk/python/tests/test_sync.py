"""The client for ordinary code against the real gateway."""

from __future__ import annotations

import hashlib
import os
import threading
import time
import unittest

from gateway import TestGateway

import provost
from provost import Cause, Chunk, Exit, Gap, Gateway, OnAsk, Session, Stream


class Case(unittest.TestCase):
    served: TestGateway
    gateway: Gateway
    session: Session

    @classmethod
    def setUpClass(cls) -> None:
        cls.served = TestGateway()
        cls.addClassCleanup(cls.served.end)
        cls.gateway = Gateway(cls.served.address)
        cls.addClassCleanup(cls.gateway.close)
        cls.session = cls.gateway.open_session([cls.served.workspace])
        cls.addClassCleanup(cls.session.close)


class Commands(Case):
    def test_a_command_runs_to_its_end(self) -> None:
        result = self.session.run("sh", "-c", "echo out; exit 3")
        self.assertEqual((result.exit_code, result.output), (3, b"out\n"))
        self.assertEqual(result.outcome.cause, Cause.EXITED)
        self.assertFalse(result.truncated)

    def test_a_shell_line_and_its_environment(self) -> None:
        result = self.session.run(shell_line="printenv GREETING; pwd", env={"GREETING": "hello"})
        self.assertEqual(result.output, f"hello\n{self.served.workspace}\n".encode())

    def test_what_is_no_utf_8_is_passed_as_it_is(self) -> None:
        directory = os.fsencode(self.served.workspace) + b"/d\xe9"
        os.mkdir(directory)
        tell = 'printf "%s|" "$@" "$X"; pwd'
        words = ("sh", "-c", tell, "sh", b"a\xff", os.fsdecode(b"b\xfd"))
        result = self.session.run(*words, env={"X": b"\xfe"}, cwd=directory)
        self.assertEqual(result.output, b"a\xff|b\xfd|\xfe|" + directory + b"\n")

    def test_a_command_has_this_processs_umask_or_the_one_that_is_named(self) -> None:
        before = os.umask(0o027)
        try:
            own = self.session.run("sh", "-c", "umask")
        finally:
            os.umask(before)
        self.assertEqual(own.output, b"0027\n")
        self.assertEqual(self.session.run("sh", "-c", "umask", umask=0o077).output, b"0077\n")

    def test_stdout_and_stderr_are_two_streams(self) -> None:
        result = self.session.run("sh", "-c", "echo out; echo err >&2", split=True)
        self.assertEqual((result.output, result.stderr), (b"out\n", b"err\n"))

    def test_output_comes_while_the_command_runs(self) -> None:
        line = "echo first; while ! [ -e go-on ]; do sleep 0.02; done; echo second"
        seen: list[bytes] = []
        for event in self.session.stream(shell_line=line):
            if isinstance(event, Exit):
                self.assertEqual(event.outcome.exit_code, 0)
            else:
                seen.append(event.data)
                (self.served.workspace / "go-on").touch()
        self.assertEqual(seen, [b"first\n", b"second\n"])
        self.assertEqual(self.session.terminals(), [])

    def test_a_stream_that_is_closed_stops_its_command(self) -> None:
        events = self.session.stream("sh", "-c", "echo here; exec sleep 1000")
        self.assertIsInstance(next(events), Chunk)
        self.assertEqual(len(self.session.terminals()), 1)
        events.close()
        self.assertEqual(self.session.terminals(), [])

    def test_a_result_keeps_the_tail(self) -> None:
        result = self.session.run("seq", "100000", keep_bytes=7)
        self.assertEqual(result.output, b"100000\n")
        self.assertTrue(result.truncated)

    def test_limits_end_a_command(self) -> None:
        result = self.session.run("sleep", "1000", time_limit=0.2)
        self.assertEqual(result.outcome.cause, Cause.TIME_LIMIT)
        result = self.session.run("sh", "-c", "echo one; sleep 1000", idle_limit=0.3)
        self.assertEqual((result.outcome.cause, result.output), (Cause.IDLE_LIMIT, b"one\n"))


class Terminals(Case):
    def test_a_terminal_is_written_to_waited_for_and_released(self) -> None:
        with self.session.create("cat", stdin=True) as terminal:
            self.assertEqual(terminal.write(b"x" * 3_000_000, eof=False), 3_000_000)
            terminal.write(b"end", eof=True)
            self.assertEqual(terminal.wait().exit_code, 0)
            self.assertEqual(terminal.info().command, "cat")
            data, truncated = terminal.output()
            self.assertTrue(data.endswith(b"xend"))
            self.assertTrue(truncated)
        with self.assertRaises(provost.NotFound):
            terminal.info()

    def test_output_is_attached_to_from_an_offset(self) -> None:
        with self.session.create("printf", "0123456789") as terminal:
            terminal.wait()
            self.assertEqual(list(terminal.attach(4)), [Chunk(Stream.STDOUT, 4, b"456789")])
            again = self.session.terminal(terminal.id)
            self.assertEqual(list(again.attach(8, follow=False)), [Chunk(Stream.STDOUT, 8, b"89")])

    def test_dropped_output_is_a_counted_gap(self) -> None:
        with self.session.create("seq", "100000", output_byte_limit=4096) as terminal:
            terminal.wait()
            first, *rest = list(terminal.attach())
            self.assertIsInstance(first, Gap)
            self.assertEqual(sum(len(piece.data) for piece in rest if isinstance(piece, Chunk)), 4096)

    def test_killing_ends_it(self) -> None:
        with self.session.create("sleep", "1000") as terminal:
            with self.assertRaises(provost.DeadlineExceeded):
                terminal.wait(0.1)
            terminal.kill(grace=5)
            outcome = terminal.wait()
            self.assertEqual((outcome.signal, outcome.cause), ("SIGTERM", Cause.KILLED))

    def test_a_signal_reaches_it(self) -> None:
        with self.session.create("sleep", "1000") as terminal:
            terminal.signal("SIGINT")
            outcome = terminal.wait()
            self.assertEqual((outcome.signal, outcome.cause), ("SIGINT", Cause.SIGNALLED))


class Refusals(Case):
    def test_a_denial_names_its_rule_and_reason(self) -> None:
        with self.assertRaises(provost.Denied) as caught:
            self.session.run("reboot", "now")
        self.assertEqual((caught.exception.rule, caught.exception.reason), ("no-reboot", "POLICY_DENIED"))
        self.assertIn("this machine is not yours", str(caught.exception))

    def test_other_errors_have_their_types(self) -> None:
        with self.assertRaises(provost.SpawnFailed) as spawn:
            self.session.run("no-such-program")
        self.assertEqual(spawn.exception.reason, "COMMAND_NOT_FOUND")
        with self.assertRaises(provost.InvalidField) as field:
            self.session.run("true", cwd="not/absolute")
        self.assertEqual(field.exception.field, "cwd")
        with self.assertRaises(provost.NotFound):
            self.gateway.session("sess_01ARZ3NDEKTSV4RRFFQ69G5FAV").run("true")

    def test_an_approval_is_asked_for_watched_and_given(self) -> None:
        answers: list[provost.Approval] = []

        def answer() -> None:
            for approval in self.gateway.watch_approvals(session_id=self.session.id):
                answers.append(approval)
                if approval.state == "PENDING":
                    self.gateway.approve(approval.id, comment="go on")
                if approval.state == "USED":
                    return

        person = threading.Thread(target=answer)
        person.start()
        result = self.session.run("echo", "publish", "it")
        person.join(60)
        self.assertEqual(result.output, b"publish it\n")
        self.assertEqual([a.state for a in answers], ["PENDING", "APPROVED", "USED"])
        self.assertEqual({a.rule for a in answers}, {"ask-publish"})

    def test_an_approval_is_left_open_and_denied(self) -> None:
        with self.assertRaises(provost.ApprovalRequired) as asked:
            self.session.run("echo", "publish", "no", on_ask=OnAsk.REFUSE)
        self.assertEqual(asked.exception.rule, "ask-publish")
        self.assertIn(asked.exception.approval_id, [a.id for a in self.gateway.approvals()])
        denied = self.gateway.deny(asked.exception.approval_id, comment="not today")
        self.assertEqual(denied.state, "DENIED")


class Restarts(Case):
    """Each test ends the gateway while calls are under way."""

    def start_again_later(self) -> threading.Thread:
        def later() -> None:
            # Calls fail meanwhile.
            time.sleep(0.3)
            self.served.start_again()

        starting = threading.Thread(target=later)
        starting.start()
        return starting

    def test_a_run_loses_and_doubles_no_byte(self) -> None:
        count = 3_000_000
        expected = hashlib.sha256(b"".join(b"%d\n" % n for n in range(1, count + 1)))
        found = hashlib.sha256()
        # A crash, an end in good order, and another crash.
        ends, offset = [self.served.crash, self.served.leave, self.served.crash], 0
        for event in self.session.stream("seq", str(count)):
            if isinstance(event, Exit):
                self.assertEqual(event.outcome.exit_code, 0)
                continue
            self.assertEqual(event.offset, offset)
            offset += len(event.data)
            found.update(event.data)
            if ends and offset > (4 - len(ends)) * 4_000_000:
                ends.pop(0)()
                self.start_again_later().join()
        self.assertEqual(ends, [])
        self.assertEqual(found.hexdigest(), expected.hexdigest())

    def test_waiting_and_reading_go_on_at_the_next_gateway(self) -> None:
        line = "echo before; while ! [ -e proceed ]; do sleep 0.02; done; echo after; exit 5"
        with self.session.create(shell_line=line) as terminal:
            pieces = terminal.attach()
            first = next(pieces)
            self.assertIsInstance(first, Chunk)
            self.served.crash()
            starting = self.start_again_later()
            (self.served.workspace / "proceed").touch()
            outcome = terminal.wait()
            starting.join()
            rest = b"".join(piece.data for piece in pieces if isinstance(piece, Chunk))
            self.assertEqual((outcome.exit_code, rest), (5, b"after\n"))

    def test_no_gateway_is_an_error_when_the_time_is_over(self) -> None:
        self.served.crash()
        try:
            with Gateway(self.served.address, reconnect_for=0.2) as gateway:
                with self.assertRaises(provost.GatewayUnavailable):
                    gateway.open_session([self.served.workspace])
        finally:
            self.served.start_again()


if __name__ == "__main__":
    unittest.main()
