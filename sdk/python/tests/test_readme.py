"""What the README shows, as it stands, and the class of errors that its text names."""

from __future__ import annotations

import os
import subprocess
import sys
import unittest
from pathlib import Path

from gateway import TestGateway

README = Path(__file__).resolve().parents[1] / "README.md"


def block(text: str) -> str:
    """The block in Python that has this text."""
    pieces = [piece.split("```")[0] for piece in README.read_text().split("```python\n")[1:]]
    (found,) = [piece for piece in pieces if text in piece]
    return found


class Readme(unittest.TestCase):
    served: TestGateway

    @classmethod
    def setUpClass(cls) -> None:
        cls.served = TestGateway()
        cls.addClassCleanup(cls.served.end)
        (cls.served.workspace / "Makefile").write_text("all test:\n\t@echo made $@\n")
        (cls.served.workspace / "src").mkdir()
        (cls.served.workspace / "src" / "Makefile").write_text("all:\n\t@echo $(CC)\n")

    def printed(self, program: str) -> str:
        ended = subprocess.run(
            [sys.executable, "-c", program],
            cwd=self.served.workspace,
            env={**os.environ, "PROVOST_GATEWAY": self.served.address},
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        self.assertEqual(ended.returncode, 0, ended.stderr)
        return ended.stdout

    def test_first_command(self) -> None:
        self.assertEqual(self.printed(block("open_session")), "0 made test\n\n")

    def test_kept_shell(self) -> None:
        opening = "import provost\nwith provost.Gateway() as gateway, gateway.open_session(['.']) as session:\n"
        indented = "".join(f"    {line}" for line in block("open_shell").splitlines(keepends=True))
        printed = self.printed(opening + indented)
        self.assertTrue(printed.startswith("0 "), printed)
        self.assertIn("clang", printed)
        self.assertIn(str(self.served.workspace / "src"), printed)


if __name__ == "__main__":
    unittest.main()
