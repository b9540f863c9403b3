"""Kept shells against the real gateway."""

from __future__ import annotations

import asyncio
import time
import unittest
from concurrent.futures import ThreadPoolExecutor

from gateway import TestGateway
from test_sync import Case

import provost
from provost import (
    AsyncGateway,
    Chunk,
    LineDoubt,
    LineEnd,
    LineEnding,
    LineStarted,
    LineWaits,
    Shell,
    ShellActivity,
)

DEADLINE_S = 60.0


class Lines(Case):
    shell: Shell

    def setUp(self) -> None:
        self.shell = self.session.open_shell("bash")
        self.addCleanup(self.shell.release)

    def wait_until(self, activity: ShellActivity) -> None:
        deadline = time.monotonic() + DEADLINE_S
        while (status := self.shell.status()).activity != activity:
            self.assertLess(time.monotonic(), deadline, status)
            time.sleep(0.02)

    def test_each_line_has_its_output_and_exit_code_and_what_it_sets_stays(self) -> None:
        first = self.shell.run_line("mkdir -p inner && cd inner && export KEPT=value; (exit 7)")
        self.assertEqual((first.exit_code, first.text), (7, ""))
        seen: list[bytes] = []
        second = self.shell.run_line('printf "%s-%s\\n" "$?" "$KEPT"; echo two', on_output=lambda piece: seen.append(piece.data))
        self.assertEqual((second.exit_code, second.text), (0, "7-value\ntwo\n"))
        self.assertEqual((b"".join(seen), second.output), (second.output, b"7-value\r\ntwo\r\n"))
        self.assertEqual((second.end.ending, second.end.doubts), (LineEnding.CONFIRMED, frozenset()))
        self.assertTrue(second.end.marks_seen)
        self.assertEqual(second.end.cwd, str(self.served.workspace / "inner"))
        status = self.shell.status()
        self.assertEqual((status.activity, status.line_id), (ShellActivity.IDLE, None))
        self.assertEqual(status.cwd, str(self.served.workspace / "inner"))
        # It is a terminal like others, also for those who know only its id.
        again = self.session.shell(self.shell.id)
        self.assertEqual(again.run_line("printenv KEPT").text, "value\n")
        self.assertIn(b"7-value", again.output()[0])

    def test_the_profiles_shell_is_kept_if_none_is_named(self) -> None:
        with self.session.open_shell(size=(100, 30), env={"GREETING": "hello"}) as shell:
            self.assertEqual(shell.run_line("printenv GREETING; stty size").text, "hello\n30 100\n")

    def test_of_long_output_the_tail_is_kept(self) -> None:
        result = self.shell.run_line("seq 1 2000", keep_bytes=6)
        self.assertEqual((result.output, result.truncated), (b"2000\r\n", True))

    def test_a_line_that_waits_is_given_input(self) -> None:
        kinds: list[str] = []
        output = b""
        for event in self.shell.stream_line("head -n 1"):
            kinds.append(type(event).__name__)
            if isinstance(event, LineStarted):
                line_id = event.line_id
            elif isinstance(event, LineWaits):
                self.assertEqual(event.line_id, line_id)
                self.assertEqual(self.shell.status().line_id, line_id)
                self.assertEqual(self.shell.status().activity, ShellActivity.WAITING_FOR_INPUT)
                self.shell.write_line(line_id, b"given\r")
            elif isinstance(event, Chunk):
                output += event.data
        self.assertEqual((kinds[0], kinds[-1], kinds.count("LineWaits")), ("LineStarted", "LineEnd", 1))
        self.assertTrue(output.endswith(b"given\r\n"), output)
        with self.assertRaises(provost.ProvostError) as over:
            self.shell.write_line(line_id, b"late\r")
        self.assertEqual(over.exception.reason, "LINE_OVER")

    def test_a_busy_shell_refuses_or_queues_and_is_interrupted(self) -> None:
        events = self.shell.stream_line("sh -c 'echo begun; exec sleep 1000'")
        next(event for event in events if isinstance(event, Chunk) and b"begun" in event.data)
        self.assertEqual(self.shell.status().activity, ShellActivity.BUSY)
        with self.assertRaises(provost.ProvostError) as busy:
            self.shell.run_line("echo no")
        self.assertEqual(busy.exception.reason, "SHELL_BUSY")
        self.shell.interrupt()
        end = list(events)[-1]
        assert isinstance(end, LineEnd)
        self.assertEqual((end.exit_code, end.ending), (130, LineEnding.CONFIRMED))
        # A line whose events nobody wants any more goes on; the next one waits for it.
        events = self.shell.stream_line("while ! [ -e queued ]; do sleep 0.02; done")
        next(events)
        events.close()
        self.assertEqual(self.shell.status().activity, ShellActivity.BUSY)
        (self.served.workspace / "queued").touch()
        self.assertEqual(self.shell.run_line("echo after", queue=True).text, "after\n")

    def test_lines_that_are_sent_at_once_after_another_each_have_their_own_output(self) -> None:
        ends = [0]
        for number in range(10):
            for line, text in (
                (f"word=kept{number}", ""),
                ('printf "%s\\n" "$word"', f"kept{number}\n"),
                ("/bin/cat /dev/null", ""),
                ('/usr/bin/env printf "%s\\n" "$word"', f"kept{number}\n"),
            ):
                result = self.shell.run_line(line)
                self.assertEqual((result.text, result.exit_code, result.end.doubts), (text, 0, frozenset()))
                self.assertEqual(result.end.ending, LineEnding.CONFIRMED)
                self.assertGreater(result.end.start, ends[-1])
                ends.append(result.end.end)

    def test_a_line_of_words_that_a_rule_cannot_know_waits_for_a_person(self) -> None:
        self.shell.run_line("word=kept")
        with ThreadPoolExecutor(1) as others:
            waits = others.submit(self.shell.run_line, "echo $word")
            deadline = time.monotonic() + DEADLINE_S
            while not (asked := self.gateway.approvals(session_id=self.session.id)):
                self.assertLess(time.monotonic(), deadline)
                time.sleep(0.02)
            self.assertEqual(self.shell.status().activity, ShellActivity.BUSY)
            with self.assertRaises(provost.ProvostError) as busy:
                self.shell.run_line("true")
            self.gateway.approve(asked[0].id)
            self.assertEqual(waits.result(DEADLINE_S).text, "kept\n")
        self.assertEqual(busy.exception.reason, "SHELL_BUSY")
        self.assertEqual(self.shell.status().activity, ShellActivity.IDLE)

    def test_missing_marks_are_an_honest_flag(self) -> None:
        result = self.shell.run_line("_provost() { :; }; PS1='$ '", quiet_limit=0.5)
        self.assertEqual((result.end.ending, result.exit_code), (LineEnding.QUIET, None))
        self.assertIn(LineDoubt.MARKS_MISSING, result.end.doubts)
        self.assertFalse(result.end.marks_seen)
        self.shell.interrupt()
        self.assertTrue(self.shell.run_line("true").end.marks_seen)

    def test_a_shell_that_is_left_has_an_outcome(self) -> None:
        end = self.shell.run_line("exit 5").end
        self.assertEqual((end.ending, end.exit_code), (LineEnding.SHELL_ENDED, 5))
        assert end.outcome is not None
        self.assertEqual(end.outcome.exit_code, 5)
        self.assertEqual(self.shell.status().activity, ShellActivity.ENDED)

    def test_a_line_is_denied_before_it_runs(self) -> None:
        with self.assertRaises(provost.Denied) as denied:
            self.shell.run_line("touch denied; reboot now")
        self.assertEqual(denied.exception.rule, "no-reboot")
        self.assertFalse((self.served.workspace / "denied").exists())
        with self.assertRaises(provost.ProvostError) as plain:
            with self.session.create("sleep", "1000") as terminal:
                self.session.shell(terminal.id).run_line("true")
        self.assertEqual(plain.exception.reason, "NOT_A_KEPT_SHELL")

    def test_a_line_goes_on_without_its_gateway_and_is_not_run_twice(self) -> None:
        self.shell.run_line("export KEPT=value")
        events = self.shell.stream_line("echo once >>ran; while ! [ -e go-on ]; do sleep 0.02; done")
        next(events)
        self.served.crash()
        with self.assertRaises(provost.GatewayUnavailable):
            list(events)
        self.served.start_again()
        self.assertEqual(self.shell.status().activity, ShellActivity.BUSY)
        (self.served.workspace / "go-on").touch()
        self.wait_until(ShellActivity.IDLE)
        self.assertEqual(self.shell.run_line("cat ran; printenv KEPT").text, "once\nvalue\n")


class Concurrency(unittest.IsolatedAsyncioTestCase):
    served: TestGateway

    @classmethod
    def setUpClass(cls) -> None:
        cls.served = TestGateway()
        cls.addClassCleanup(cls.served.end)

    async def test_a_cancelled_line_is_interrupted(self) -> None:
        async with AsyncGateway(self.served.address) as gateway:
            async with await gateway.open_session([self.served.workspace]) as session:
                async with await session.open_shell("bash") as shell:
                    begun = asyncio.Event()

                    def notice(piece: Chunk) -> None:
                        if b"begun" in piece.data:
                            begun.set()

                    line = asyncio.create_task(
                        shell.run_line("sh -c 'echo begun; exec sleep 1000'", on_output=notice)
                    )
                    await begun.wait()
                    line.cancel()
                    with self.assertRaises(asyncio.CancelledError):
                        await line
                    result = await shell.run_line("printf '%s\\n' $?", queue=True)
                    self.assertEqual(result.text, "130\n")

    async def test_shells_run_lines_at_the_same_time(self) -> None:
        async with AsyncGateway(self.served.address) as gateway:
            async with await gateway.open_session([self.served.workspace]) as session:
                first, second = await asyncio.gather(session.open_shell(), session.open_shell())
                # Each waits for the other.
                results = await asyncio.gather(
                    first.run_line("touch a; while ! [ -e b ]; do sleep 0.02; done"),
                    second.run_line("touch b; while ! [ -e a ]; do sleep 0.02; done"),
                )
                self.assertEqual([result.exit_code for result in results], [0, 0])


if __name__ == "__main__":
    unittest.main()
