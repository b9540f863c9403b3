"""What asyncio adds: calls at the same time, also over a crash of the gateway, and cancellation."""

from __future__ import annotations

import asyncio
import unittest

from gateway import TestGateway

from provost import AsyncGateway, Chunk, Exit


class Concurrency(unittest.IsolatedAsyncioTestCase):
    served: TestGateway

    @classmethod
    def setUpClass(cls) -> None:
        cls.served = TestGateway()
        cls.addClassCleanup(cls.served.end)

    async def test_commands_run_at_the_same_time(self) -> None:
        async with AsyncGateway(self.served.address) as gateway:
            async with await gateway.open_session([self.served.workspace]) as session:
                # Each waits for the other.
                lines = ["touch a; while ! [ -e b ]; do sleep 0.02; done", "touch b; while ! [ -e a ]; do sleep 0.02; done"]
                results = await asyncio.gather(*(session.run(shell_line=line, time_limit=60) for line in lines))
                self.assertEqual([result.exit_code for result in results], [0, 0])

    async def test_runs_that_are_under_way_lose_and_double_no_byte_over_a_crash(self) -> None:
        count = 500_000
        expected = b"".join(b"%d\n" % n for n in range(1, count + 1))
        async with AsyncGateway(self.served.address) as gateway:
            async with await gateway.open_session([self.served.workspace]) as session:
                under_way, crashed = [asyncio.Event(), asyncio.Event()], asyncio.Event()

                async def read(begun: asyncio.Event) -> tuple[int | None, bytes]:
                    output = b""
                    async for event in session.stream("seq", str(count)):
                        if isinstance(event, Exit):
                            return event.outcome.exit_code, output
                        self.assertEqual(event.offset, len(output))
                        output += event.data
                        begun.set()
                        await crashed.wait()
                    self.fail("a run ends with its exit")

                reads = [asyncio.create_task(read(begun)) for begun in under_way]
                await asyncio.gather(*(begun.wait() for begun in under_way))
                self.served.crash()
                crashed.set()
                await asyncio.to_thread(self.served.start_again)
                for code, output in await asyncio.gather(*reads):
                    self.assertEqual((code, output == expected), (0, True), len(output))

    async def test_a_cancelled_run_stops_its_command(self) -> None:
        async with AsyncGateway(self.served.address) as gateway:
            async with await gateway.open_session([self.served.workspace]) as session:
                started = asyncio.Event()

                def notice(_: Chunk) -> None:
                    started.set()

                run = asyncio.create_task(
                    session.run("sh", "-c", "echo here; exec sleep 1000", on_output=notice)
                )
                await started.wait()
                self.assertEqual(len(await session.terminals()), 1)
                run.cancel()
                with self.assertRaises(asyncio.CancelledError):
                    await run
                self.assertEqual(await session.terminals(), [])


if __name__ == "__main__":
    unittest.main()
