"""Where a program is not one thread from its start to its end: forked processes, trio, and programs whose threads were replaced."""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import subprocess
import sys
import threading
import unittest
import warnings
from collections.abc import Callable
from multiprocessing.connection import Connection

import anyio
import trio
from gateway import TestGateway

import provost
from provost import AsyncGateway, Gateway

DEADLINE_S = 30.0


def in_child(work: Callable[[], object]) -> object:
    """What the work gives in a forked process, or the name of its error. ``None``: the process hung or was killed."""
    receiver, sender = multiprocessing.Pipe(duplex=False)

    def child(sender: Connection) -> None:
        try:
            sender.send(work())
        except Exception as error:  # noqa: BLE001
            sender.send(type(error).__name__)

    with warnings.catch_warnings():
        # Newer versions of Python warn of what is tested here.
        warnings.simplefilter("ignore", DeprecationWarning)
        process = multiprocessing.get_context("fork").Process(target=child, args=(sender,))
        process.start()
    sender.close()
    try:
        given = receiver.recv() if receiver.poll(DEADLINE_S) else None
    except EOFError:
        given = None
    process.join(DEADLINE_S)
    process.kill()
    return given


class Case(unittest.TestCase):
    served: TestGateway

    @classmethod
    def setUpClass(cls) -> None:
        cls.served = TestGateway()
        cls.addClassCleanup(cls.served.end)


class Forks(Case):
    def test_a_forked_process_uses_what_it_has_inherited_and_what_it_opens(self) -> None:
        with Gateway(self.served.address) as gateway, gateway.open_session([self.served.workspace]) as session:
            self.assertEqual(session.run("echo", "before").output, b"before\n")

            def opens() -> bytes:
                with Gateway(self.served.address) as own, own.open_session([self.served.workspace]) as opened:
                    return opened.run("echo", "own").output

            for _ in range(5):
                self.assertEqual(in_child(lambda: session.run("echo", "in").output), b"in\n")
                self.assertEqual(in_child(opens), b"own\n")
                self.assertEqual(session.run("echo", "after").output, b"after\n")
            grandchild = in_child(lambda: in_child(lambda: session.run("echo", "in").output))
            self.assertIn(grandchild, (b"in\n", "AssertionError"), "daemonic processes have no children")

    def test_a_process_that_is_forked_by_a_thread_or_before_the_first_call_uses_it(self) -> None:
        with Gateway(self.served.address) as gateway:
            self.assertEqual(in_child(lambda: gateway.approvals()), [])
            found: list[object] = []
            thread = threading.Thread(target=lambda: found.append(in_child(lambda: gateway.approvals())))
            thread.start()
            thread.join()
            self.assertEqual(found, [[]])

    def test_a_process_that_is_forked_during_a_call_is_told_at_once_and_the_call_goes_on(self) -> None:
        with Gateway(self.served.address) as gateway, gateway.open_session([self.served.workspace]) as session:
            line = "echo one; while ! [ -e forked ]; do sleep 0.02; done; echo two"
            events = session.stream(shell_line=line)
            self.assertIsInstance(next(events), provost.Chunk)
            self.assertEqual(in_child(lambda: session.run("true")), "Forked")
            self.assertEqual(in_child(lambda: next(events)), "Forked")
            self.assertEqual(in_child(lambda: Gateway(self.served.address).approvals()), "Forked")
            # Those that make no call run to their end.
            self.assertEqual([in_child(lambda: "ended") for _ in range(10)], ["ended"] * 10)
            (self.served.workspace / "forked").touch()
            rest = b"".join(event.data for event in events if isinstance(event, provost.Chunk))
            self.assertEqual(rest, b"two\n")
            self.assertEqual(in_child(lambda: session.run("echo", "in").output), b"in\n")

    def test_a_forked_process_that_leaves_the_block_ends_neither_session_nor_terminal(self) -> None:
        with Gateway(self.served.address) as gateway, gateway.open_session([self.served.workspace]) as session:
            with session.create("cat", stdin=True) as terminal:

                def leaves() -> str:
                    terminal.__exit__(None, None, None)
                    session.__exit__(None, None, None)
                    gateway.__exit__(None, None, None)
                    return "left"

                self.assertEqual(in_child(leaves), "left")
                terminal.write(b"here", eof=True)
                self.assertEqual(terminal.wait().exit_code, 0)

    def test_a_process_that_is_forked_by_a_coroutine_uses_it(self) -> None:
        async def main() -> tuple[object, bytes]:
            async with AsyncGateway(self.served.address) as gateway:
                async with gateway.open_session([self.served.workspace]) as session:
                    await session.run("true")
                    found = in_child(lambda: _in_a_thread(lambda: asyncio.run(_echo(session, "in"))))
                    return found, await _echo(session, "after")

        self.assertEqual(asyncio.run(main()), (b"in\n", b"after\n"))

    def test_programs_that_are_started_decide_for_themselves_on_grpcs_support_of_forks(self) -> None:
        tell = "import os, provost; print(os.environ.get('GRPC_ENABLE_FORK_SUPPORT'))"
        for given, found in (({}, "None"), ({"GRPC_ENABLE_FORK_SUPPORT": "1"}, "1")):
            env = {name: value for name, value in os.environ.items() if name != "GRPC_ENABLE_FORK_SUPPORT"} | given
            said = subprocess.run([sys.executable, "-c", tell], env=env, capture_output=True, text=True, check=True)
            self.assertEqual(said.stdout, found + "\n")


async def _echo(session: provost.AsyncSession, word: str) -> bytes:
    return (await session.run("echo", word)).output


def _in_a_thread(work: Callable[[], object]) -> object:
    """In a process that was forked by a coroutine, the first thread is within the parent's loop."""
    found: list[object] = []
    thread = threading.Thread(target=lambda: found.append(work()))
    thread.start()
    thread.join()
    return found[0]


class Libraries(Case):
    async def _uses(self) -> None:
        async with AsyncGateway(self.served.address) as gateway:
            async with gateway.open_session([self.served.workspace]) as session:
                result = await session.run("sh", "-c", "echo out; echo err >&2; exit 3", split=True)
                self.assertEqual((result.exit_code, result.output, result.stderr), (3, b"out\n", b"err\n"))
                async with session.create("cat", stdin=True) as terminal:
                    await terminal.write(b"typed", eof=True)
                    self.assertEqual((await terminal.wait()).exit_code, 0)
                    self.assertEqual([piece async for piece in terminal.attach()][0].data, b"typed")  # type: ignore[union-attr]
                async with session.open_shell("bash") as shell:
                    await shell.run_line("export KEPT=kept; (exit 0)")
                    self.assertIn("kept", (await shell.run_line("printenv KEPT")).text)
                with self.assertRaises(provost.Denied):
                    await session.run("reboot", "now")
                # What is cancelled has stopped its command when that is heard of.
                with anyio.move_on_after(0.5) as scope:
                    await session.run("sleep", "1000")
                self.assertTrue(scope.cancelled_caught)
                self.assertEqual(await session.terminals(), [])
                outputs: list[bytes] = []

                async def echo(word: str) -> None:
                    outputs.append((await session.run("echo", word)).output)

                async with anyio.create_task_group() as group:
                    for word in ("a", "b", "c"):
                        group.start_soon(echo, word)
                self.assertEqual(sorted(outputs), [b"a\n", b"b\n", b"c\n"])

    def test_all_works_under_anyio_on_trio_and_on_asyncio(self) -> None:
        for backend in ("trio", "asyncio"):
            with self.subTest(backend):
                anyio.run(self._uses, backend=backend)

    def test_all_works_under_trio_alone(self) -> None:
        trio.run(self._uses)

    def test_a_gateway_serves_one_loop_after_another(self) -> None:
        gateway = AsyncGateway(self.served.address)
        for _ in range(2):
            self.assertEqual(asyncio.run(gateway.approvals()), [])
        self.assertEqual(trio.run(gateway.approvals), [])
        asyncio.run(gateway.close())

    def test_what_is_opened_is_awaited_or_entered_or_a_task(self) -> None:
        async def main() -> None:
            async with AsyncGateway(self.served.address) as gateway:
                async with await gateway.open_session([self.served.workspace]) as session:
                    async with session.create("sleep", "1000") as terminal:
                        pass
                    with self.assertRaises(provost.NotFound):
                        await terminal.info()
                    task = asyncio.create_task(gateway.open_session([self.served.workspace]))
                    async with await task as other:
                        self.assertNotEqual(other.id, session.id)
                    with self.assertRaises(ValueError):
                        async with gateway.open_session([self.served.workspace]) as closed:
                            raise ValueError
                    with self.assertRaises(provost.NotFound):
                        await closed.run("true")

        asyncio.run(main())

    def test_where_threads_were_replaced_it_says_so_at_once(self) -> None:
        for patch in ("patch_all()", "patch_all(thread=False)"):
            program = f"""
from gevent import monkey
monkey.{patch}
import provost
for kind in provost.Gateway, provost.AsyncGateway:
    try:
        kind()
    except provost.UnsupportedRuntime as error:
        print(error)
"""
            ended = subprocess.run(
                [sys.executable, "-c", program],
                env={**os.environ, "PROVOST_GATEWAY": self.served.address},
                capture_output=True,
                text=True,
                timeout=DEADLINE_S,
                check=False,
            )
            self.assertEqual(ended.returncode, 0, ended.stderr)
            said = ended.stdout.splitlines()
            self.assertEqual([line.split()[0] for line in said], ["gevent", "gevent"], ended.stdout)


if __name__ == "__main__":
    unittest.main()
