"""The real gateway, for the tests: started in a directory of its own, killed, and started again.

``PROVOST`` names the binary; else it is the one that cargo has built.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
DEADLINE_S = 60.0

# The shipped policy, with one rule that denies and one that asks.
RULES = """
[[rule]]
id = "no-reboot"
decision = "deny"
argv = ["reboot", "**"]
reason = "this machine is not yours"

[[rule]]
id = "ask-publish"
decision = "ask"
argv = ["echo", "publish", "**"]
reason = "publishing needs a person"
"""


class TestGateway:
    """A running ``provost serve``."""

    __test__ = False

    def __init__(self) -> None:
        self.directory = Path(tempfile.mkdtemp(prefix="provost-sdk-"))
        self.workspace = self.directory / "work"
        self.workspace.mkdir()
        policies = self.directory / "policies"
        policies.mkdir()
        shipped = (ROOT / "policies/default.toml").read_text()
        (policies / "default.toml").write_text(shipped)
        (policies / "tests.toml").write_text(RULES)
        # A gateway that ends does not wait long for those who read.
        (self.directory / "config.toml").write_text('drain = "100ms"\n')
        self.socket = self.directory / "run" / "provost.sock"
        self.address = f"unix:{self.socket}"
        self._process = self._start()

    def _start(self) -> subprocess.Popen[bytes]:
        binary = os.environ.get("PROVOST", str(ROOT / "target/debug/provost"))
        with (self.directory / "log").open("ab") as log:
            process = subprocess.Popen(
                [
                    binary,
                    "serve",
                    "--listen",
                    self.address,
                    "--config",
                    str(self.directory / "config.toml"),
                    "--state",
                    str(self.directory / "state"),
                    "--policies",
                    str(self.directory / "policies"),
                ],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )
        deadline = time.monotonic() + DEADLINE_S
        while not self.socket.exists():
            if process.poll() is not None or time.monotonic() > deadline:
                raise AssertionError((self.directory / "log").read_text())
            time.sleep(0.01)
        return process

    def crash(self) -> None:
        """Kills it, as a crash does."""
        self._process.kill()
        self._process.wait()
        # The next one makes its own: a test that waits for the file must not find the old one.
        self.socket.unlink(missing_ok=True)

    def leave(self) -> None:
        """Ends it in good order; commands run on."""
        self._process.terminate()
        self._process.wait(DEADLINE_S)

    def start_again(self) -> None:
        """Starts another one on what the one before has left."""
        self._process = self._start()

    def end(self) -> None:
        """Stops it with all its commands, and removes its directory."""
        self._process.send_signal(signal.SIGINT)
        try:
            self._process.wait(DEADLINE_S)
        finally:
            shutil.rmtree(self.directory, ignore_errors=True)
