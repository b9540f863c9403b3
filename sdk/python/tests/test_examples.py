"""The examples, as they stand."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import unittest
from pathlib import Path

from gateway import TestGateway

EXAMPLES = Path(__file__).resolve().parents[1] / "examples"


class Examples(unittest.TestCase):
    served: TestGateway

    @classmethod
    def setUpClass(cls) -> None:
        cls.served = TestGateway()
        cls.addClassCleanup(cls.served.end)

    def run_example(self, *args: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, str(EXAMPLES / args[0]), *args[1:]],
            cwd=self.served.workspace,
            env={**os.environ, "PROVOST_GATEWAY": self.served.address},
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )

    def test_run(self) -> None:
        ended = self.run_example("run.py", "sh", "-c", "echo hello; exit 3")
        self.assertEqual((ended.returncode, ended.stdout), (3, "hello\n"), ended.stderr)
        denied = self.run_example("run.py", "reboot")
        self.assertEqual(denied.returncode, 126)
        self.assertTrue(denied.stderr.startswith("denied by no-reboot"), denied.stderr)

    def test_run_interrupted(self) -> None:
        running = subprocess.Popen(
            [sys.executable, str(EXAMPLES / "run.py"), "sh", "-c", "echo here; exec sleep 1000"],
            cwd=self.served.workspace,
            env={**os.environ, "PROVOST_GATEWAY": self.served.address},
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            # Who runs the tests may ignore it, and that is inherited.
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
        )
        with running:
            assert running.stdout
            self.assertEqual(running.stdout.readline(), b"here\n")
            running.send_signal(signal.SIGINT)
            self.assertEqual(running.wait(60), -signal.SIGINT)

    def test_background(self) -> None:
        ended = self.run_example("background.py")
        self.assertEqual((ended.returncode, ended.stdout), (0, "200\n"), ended.stderr)


if __name__ == "__main__":
    unittest.main()
