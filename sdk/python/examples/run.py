"""Runs a command in a session, prints its output as it comes, and says how it ended: ``run.py PROGRAM [ARG]...``."""

import sys

import provost


def show(chunk: provost.Chunk) -> None:
    sys.stdout.buffer.write(chunk.data)
    sys.stdout.buffer.flush()


def main() -> int:
    with provost.Gateway() as gateway, gateway.open_session(["."]) as session:
        try:
            result = session.run(*sys.argv[1:], on_output=show, time_limit=600)
        except provost.Denied as denied:
            print(f"denied by {denied.rule}: {denied.message}", file=sys.stderr)
            return 126
    outcome = result.outcome
    print(f"{outcome.cause.name.lower()} after {outcome.wall.total_seconds():.2f} s", file=sys.stderr)
    return 125 if outcome.exit_code is None else outcome.exit_code


sys.exit(main())
