"""A terminal backend of some three hundred lines, without any confinement: it stands between an editor and its agent,
answers terminal/* itself, and passes the rest on. It shows what the conformance suite takes to be right, and, with
`--defect NAME`, that the suite notices when one thing is wrong.

    plain.py [--defect NAME] -- AGENT [ARG]...
"""

import argparse
import json
import os
import signal
import subprocess
import sys
import threading
import time

SHELL = "/bin/sh"
DEFAULT_LIMIT = 1 << 20
GRACE_SECONDS = 5.0


class Refused(Exception):
    def __init__(self, code, message):
        super().__init__(message)
        self.code = code


def invalid(message):
    return Refused(-32602, message)


class Terminal:
    """One command, what it has written, and how it ended."""

    def __init__(self, params, cwd, defect):
        self.defect = defect
        self.limit = params.get("outputByteLimit")
        if self.limit is None:
            self.limit = DEFAULT_LIMIT
        self.kept, self.truncated, self.exit = b"", False, None
        self.changed = threading.Condition()
        self.released = self.abandoned = False
        self.leftovers = set()
        args = params.get("args") or []
        command = params["command"]
        argv = [command, *args]
        if not args and not is_program(command):
            argv = [SHELL, "-c", command]
        if defect == "arguments-joined":
            argv = [SHELL, "-c", " ".join([command, *args])]
        if defect == "line-not-run":
            argv = [command, *args]
        env = dict(os.environ, PAGER="cat", GIT_PAGER="cat", GIT_TERMINAL_PROMPT="0")
        for entry in params.get("env") or []:
            env[entry["name"]] = entry["value"]
        if defect == "env-dropped":
            env = dict(os.environ)
        # A mark that every process of the tree inherits.
        self.mark = f"plain-{os.getpid()}-{id(self)}-{time.monotonic_ns()}"
        env["PLAIN_MARK"] = self.mark
        where = params.get("cwd") or cwd
        if defect == "cwd-ignored":
            where = cwd
        if defect == "default-cwd-lost":
            where = params.get("cwd") or "/"
        reader, writer = os.pipe()
        try:
            self.process = subprocess.Popen(
                argv,
                cwd=where,
                env=env,
                stdin=None if defect == "stdin-inherited" else subprocess.DEVNULL,
                stdout=writer,
                stderr=subprocess.DEVNULL if defect == "stderr-lost" else writer,
                start_new_session=True,
                restore_signals=True,
                pass_fds=(writer,) if defect == "descriptor-leaks" else (),
            )
        except FileNotFoundError as error:
            os.close(reader)
            raise Refused(-32603, f"command not found: {error.filename}") from error
        finally:
            os.close(writer)
        threading.Thread(target=self.read, args=(reader,), daemon=True).start()
        threading.Thread(target=self.wait, daemon=True).start()

    def read(self, reader):
        self.reading = True
        while True:
            data = os.read(reader, 65536)
            with self.changed:
                if not data:
                    self.at_end = True
                    self.changed.notify_all()
                    return
                if self.defect == "output-late":
                    self.changed.wait(0.5)
                self.kept += data
                if len(self.kept) > self.limit:
                    self.truncated = True
                    if self.defect == "keeps-the-beginning":
                        self.kept = self.kept[: self.limit]
                    elif self.defect != "limit-ignored":
                        # One character more than the limit: where a cut falls is seen when it is asked for.
                        self.kept = self.kept[len(self.kept) - self.limit :] if self.limit else b""

    def wait(self):
        code = self.process.wait()
        with self.changed:
            # What is left in the pipe, unless something else holds it open.
            if self.defect != "output-late":
                self.changed.wait_for(lambda: getattr(self, "at_end", False), timeout=2)
            if self.defect == "waits-for-pipe":
                self.changed.wait_for(lambda: getattr(self, "at_end", False), timeout=90)
            if code < 0:
                name = signal.Signals(-code).name
                self.exit = {"exitCode": 128 - code, "signal": name}
                if self.defect == "signal-is-success":
                    self.exit = {"exitCode": 0, "signal": None}
                if self.defect == "no-code-with-signal":
                    self.exit = {"exitCode": None, "signal": name}
                if self.defect == "signal-without-sig":
                    self.exit["signal"] = name.removeprefix("SIG")
            else:
                self.exit = {"exitCode": code, "signal": None}
                if self.defect == "code-masked":
                    self.exit["exitCode"] = min(code, 1)
            self.changed.notify_all()
        self.sweep()

    def output(self):
        with self.changed:
            kept, exit_status = self.kept, self.exit
        if self.truncated and self.defect != "cuts-characters":
            # The first bytes may be the rest of a character.
            while kept and 0x80 <= kept[0] < 0xC0:
                kept = kept[1:]
        if exit_status is None and self.defect != "half-characters":
            kept = without_half_character(kept)
        text = kept.decode("utf-8", "replace")
        if self.defect == "crlf":
            text = text.replace("\n", "\r\n")
        if self.defect == "drops-invalid":
            text = kept.decode("utf-8", "ignore")
        result = {"output": text, "truncated": self.truncated, "exitStatus": exit_status}
        if self.defect == "truncated-forgotten":
            result["truncated"] = self.truncated and exit_status is None
        if self.defect == "exit-status-missing":
            result["exitStatus"] = None
        if self.defect == "output-null" and not text:
            result["output"] = None
        return result

    def wait_for_exit(self):
        with self.changed:
            if self.defect == "wait-answers-early":
                self.changed.wait_for(lambda: self.exit, timeout=0.1)
                return self.exit or {"exitCode": 0, "signal": None}
            self.changed.wait_for(lambda: self.exit or self.released)
            if self.abandoned:
                self.changed.wait_for(lambda: False)
            if self.exit is None:
                raise Refused(-32002, "the terminal was released")
            return {"exitStatus": self.exit} if self.defect == "wait-nested" else self.exit

    def kill(self):
        if self.exit is not None:
            self.sweep()
            return
        if self.defect == "kill-asks-only":
            return self.signal_all(signal.SIGTERM)
        if self.defect == "kills-one":
            return self.process.kill()
        if self.defect == "kills-group":
            return os.killpg(self.process.pid, signal.SIGKILL)
        if self.defect != "kill-without-asking":
            self.signal_all(signal.SIGTERM)
            self.signal_all(signal.SIGCONT)
            with self.changed:
                self.changed.wait_for(lambda: self.exit, timeout=GRACE_SECONDS)
        self.sweep()

    def sweep(self):
        """Kills what is left of the tree, until nothing is."""
        if self.defect in ("kills-one", "kills-group"):
            return
        while self.signal_all(signal.SIGKILL):
            time.sleep(0.02)

    def signal_all(self, number):
        """Signals every process that carries the mark, and tells whether there was one."""
        seen = False
        # Between its exec and its first instruction a process has no environment to read yet.
        if self.process.poll() is None:
            try:
                os.killpg(self.process.pid, number)
                seen = True
            except OSError:
                pass
        mark = f"PLAIN_MARK={self.mark}".encode()
        for name in os.listdir("/proc"):
            if not name.isdigit():
                continue
            try:
                with open(f"/proc/{name}/environ", "rb") as environ:
                    if mark not in environ.read().split(b"\0"):
                        continue
                os.kill(int(name), number)
                seen = True
            except OSError:
                continue
        return seen


def without_half_character(kept):
    for back in range(1, min(4, len(kept)) + 1):
        byte = kept[-back]
        if byte < 0x80:
            return kept
        if byte >= 0xC0:
            needed = 2 if byte < 0xE0 else 3 if byte < 0xF0 else 4
            return kept[:-back] if back < needed else kept
    return kept


def is_program(word):
    if "/" in word:
        return os.access(word, os.X_OK) and os.path.isfile(word)
    if " " in word:
        return False
    return any(os.access(os.path.join(directory, word), os.X_OK) for directory in os.environ["PATH"].split(":"))


class Pipe:
    """Writes whole lines."""

    def __init__(self, stream):
        self.stream, self.lock = stream, threading.Lock()

    def send(self, message):
        self.send_line(json.dumps(message, ensure_ascii=False).encode("utf-8", "surrogatepass") + b"\n")

    def send_line(self, line):
        with self.lock:
            try:
                self.stream.write(line)
                self.stream.flush()
            except (OSError, ValueError):
                pass


class Backend:
    def __init__(self, defect, agent):
        self.defect = defect
        self.agent_process = subprocess.Popen(agent, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self.to_agent, self.to_editor = Pipe(self.agent_process.stdin), Pipe(sys.stdout.buffer)
        self.terminals, self.lock, self.next = {}, threading.Lock(), 0
        self.sessions, self.opening, self.shown, self.streams = {}, {}, {}, False
        self.before = {}
        self.initializing = None
        self.cancelled, self.pending_waits = set(), set()
        self.closing, self.answering = False, []

    def run(self):
        threading.Thread(target=self.from_editor, daemon=True).start()
        for line in self.agent_process.stdout:
            self.from_agent(line)
        with self.lock:
            self.closing = True
        for thread in self.answering:
            thread.join(timeout=0.5)
        self.release_all(lambda terminal: True)
        os._exit(0)

    def from_editor(self):
        for line in sys.stdin.buffer:
            try:
                message = json.loads(line)
                method, params = message.get("method"), message.get("params") or {}
            except (ValueError, AttributeError):
                self.to_agent.send_line(line)
                continue
            if method == "initialize":
                self.initializing = message.get("id")
                if self.defect != "not-offered":
                    params.setdefault("clientCapabilities", {})["terminal"] = True
                if self.defect != "version-passed":
                    params["protocolVersion"] = 1
                self.streams = bool((params["clientCapabilities"].get("_meta") or {}).get("terminal_output"))
                self.to_agent.send(message)
                continue
            if method == "session/new" and self.defect == "servers-dropped":
                line = json.dumps(dict(message, params=dict(params, mcpServers=[]))).encode() + b"\n"
            if method in ("session/load", "session/resume") and self.defect != "loaded-cwd-lost":
                session = params["sessionId"]
                self.before[json.dumps(message["id"])] = (session, self.sessions.get(session))
                self.sessions[session] = params["cwd"]
            if method in ("session/new", "session/load", "session/resume", "session/fork"):
                of_parent = method == "session/fork" and self.defect == "forked-cwd-lost"
                self.opening[json.dumps(message["id"])] = self.sessions[params["sessionId"]] if of_parent else params["cwd"]
            if method in ("session/close", "session/delete") and self.defect != "close-leaks":
                session = params["sessionId"]
                all_of_them = self.defect == "close-ends-all"
                threading.Thread(
                    target=self.release_all, args=(lambda terminal: all_of_them or terminal.session == session,)
                ).start()
            self.to_agent.send_line(line)
        if self.defect != "editor-end-ignored":
            self.release_all(lambda terminal: True)
            self.agent_process.stdin.close()
            time.sleep(0.5)
            self.agent_process.kill()

    def from_agent(self, line):
        try:
            message = json.loads(line)
        except ValueError:
            if self.defect == "dies-of-no-json":
                os._exit(1)
            return
        if not isinstance(message, dict):
            return
        method = message.get("method") or ""
        if method.startswith("terminal/") and self.defect != "terminals-passed":
            if "id" in message:
                answering = threading.Thread(target=self.answer, args=(message,), daemon=True)
                if method == "terminal/create":
                    self.answering = [thread for thread in self.answering if thread.is_alive()] + [answering]
                answering.start()
                if self.defect == "one-at-a-time":
                    answering.join()
            elif self.defect == "answers-notifications":
                self.to_agent.send({"jsonrpc": "2.0", "id": None, "result": {}})
            return
        if method == "$/cancel_request":
            self.cancel((message.get("params") or {}).get("requestId"))
            return
        session, cwd = self.before.pop(json.dumps(message.get("id")), (None, None)) if not method else (None, None)
        if "error" in message and session is not None:
            if cwd is None or self.defect == "refused-load-closes":
                self.sessions.pop(session, None)
                self.release_all(lambda terminal: terminal.session == session)
            else:
                self.sessions[session] = cwd
        if "result" in message and json.dumps(message.get("id")) in self.opening:
            cwd = self.opening.pop(json.dumps(message["id"]))
            if isinstance(message["result"], dict) and "sessionId" in message["result"]:
                self.sessions[message["result"]["sessionId"]] = cwd
        if not method and message.get("id") == self.initializing:
            self.initializing = None
            if (message.get("result") or {}).get("protocolVersion", 1) > 1 and self.defect != "later-version-passes":
                error = {"code": -32603, "message": "the agent speaks a version that has no client terminals"}
                self.to_editor.send({"jsonrpc": "2.0", "id": message["id"], "error": error})
                return
        if method == "session/update" and self.defect != "terminals-shown" and self.rewrite(message):
            return
        if self.defect == "unknown-swallowed" and method.startswith("_") and "id" not in message:
            return
        if self.defect == "numbers-changed":
            line = json.dumps(message).replace("123456789012345678901234567890", "1.2345678901234568e29").encode() + b"\n"
        self.to_editor.send_line(line)

    def cancel(self, request):
        key = json.dumps(request)
        with self.lock:
            if key not in self.pending_waits:
                return
            self.cancelled.add(key)
        if self.defect != "cancel-unanswered":
            self.to_agent.send({"jsonrpc": "2.0", "id": request, "error": {"code": -32800, "message": "cancelled"}})

    def answer(self, message):
        request, key = message["id"], json.dumps(message["id"])
        if message["method"] == "terminal/wait_for_exit":
            with self.lock:
                self.pending_waits.add(key)
        try:
            answer = {"result": self.perform(message["method"], message.get("params"))}
            if self.defect == "null-results" and not answer["result"]:
                answer["result"] = None
        except Refused as refused:
            answer = {"error": {"code": refused.code, "message": str(refused)}}
            if self.defect == "authentication-required":
                answer["error"]["code"] = -32000
            if self.defect == "silent-errors":
                answer["error"]["message"] = "?"
        with self.lock:
            self.pending_waits.discard(key)
            if key in self.cancelled:
                self.cancelled.discard(key)
                return
        if self.defect == "ids-become-text":
            request = str(request)
        self.to_agent.send({"jsonrpc": "2.0", "id": request, **answer})
        if self.defect == "answers-twice":
            self.to_agent.send({"jsonrpc": "2.0", "id": request, **answer})
        if self.defect == "chatters":
            self.to_agent.send_line(b"debug: answered\n")

    def perform(self, method, params):
        methods = {"create": self.create, "output": self.output, "wait_for_exit": self.wait, "kill": self.kill, "release": self.release}
        chosen = methods.get(method.removeprefix("terminal/"))
        if chosen is None:
            raise Refused(-32602 if self.defect == "unknown-method-code" else -32601, f"there is no method {method}")
        if not isinstance(params, dict):
            raise invalid("params must be an object")
        if not isinstance(params.get("sessionId"), str):
            raise invalid("sessionId must be a string")
        return chosen(params)

    def create(self, params):
        if self.defect != "unchecked":
            check_create(params, self.defect)
        cwd = self.sessions.get(params["sessionId"])
        if cwd is None and self.defect != "sessions-unchecked":
            raise Refused(-32002, "there is no such session")
        given = params.get("cwd")
        if given is not None:
            if not os.path.isdir(given):
                raise invalid("cwd is no directory")
        terminal = Terminal(params, cwd or "/", self.defect)
        terminal.session = params["sessionId"]
        with self.lock:
            self.next += 1
            terminal.is_late = self.closing
            name = f"terminal-{1 if self.defect == 'ids-reused' else self.next}"
            self.terminals[name] = terminal
        if terminal.is_late and self.defect != "agent-end-leaks":
            terminal.sweep()
        if self.defect == "create-waits":
            terminal.wait_for_exit()
        return {"terminalId": name}

    def named(self, params):
        name = params.get("terminalId")
        if not isinstance(name, str):
            raise invalid("terminalId must be a string")
        with self.lock:
            terminal = self.terminals.get(name)
        if terminal is None or (terminal.session != params["sessionId"] and self.defect != "foreign-taken"):
            raise Refused(-32603 if self.defect == "unknown-id-code" else -32002, "there is no such terminal")
        return name, terminal

    def output(self, params):
        return self.named(params)[1].output()

    def wait(self, params):
        return self.named(params)[1].wait_for_exit()

    def kill(self, params):
        name, terminal = self.named(params)
        if self.defect == "kill-refused-after-end" and terminal.exit is not None:
            raise Refused(-32603, "the command has ended")
        if self.defect == "kill-does-nothing":
            return {}
        terminal.kill()
        if self.defect == "kill-releases":
            with self.lock:
                del self.terminals[name]
        return {}

    def release(self, params):
        name, terminal = self.named(params)
        terminal.abandoned = self.defect == "wait-left-behind"
        if self.defect != "release-forgets":
            terminal.kill()
        with self.lock:
            if self.defect != "released-stays":
                self.terminals.pop(name, None)
        with terminal.changed:
            terminal.released = True
            terminal.changed.notify_all()
        self.show(name, terminal)
        return {}

    def release_all(self, chosen):
        with self.lock:
            taken = [name for name, terminal in self.terminals.items() if chosen(terminal)]
            terminals = [self.terminals.pop(name) for name in taken]
        if self.defect == "agent-end-leaks":
            return
        killing = [threading.Thread(target=terminal.kill) for terminal in terminals]
        for thread in killing:
            thread.start()
        for thread in killing:
            thread.join()

    def rewrite(self, message):
        """Takes terminals out of a tool call, and shows them in another way."""
        update = message["params"]["update"]
        content = update.get("content")
        if not isinstance(content, list):
            return False
        names = [block["terminalId"] for block in content if block.get("type") == "terminal"]
        if not names:
            return False
        with self.lock:
            terminals = {name: self.terminals.get(name) or self.shown.get(name, (None,))[0] for name in names}
        for name, terminal in terminals.items():
            if terminal is not None:
                fresh = name not in self.shown
                self.shown[name] = (terminal, message["params"]["sessionId"], update["toolCallId"], content)
                if self.streams:
                    update["content"] = [block for block in content if block.get("type") != "terminal"]
                    update["_meta"] = {"terminal_info": {"terminal_id": name, "cwd": self.sessions.get(terminal.session)}}
                if fresh:
                    threading.Thread(target=self.follow, args=(name, terminal), daemon=True).start()
        if not self.streams:
            update["content"] = self.as_text(content)
        self.to_editor.send(message)
        return True

    def as_text(self, content):
        blocks = []
        for block in content:
            if block.get("type") != "terminal":
                if self.defect != "content-dropped":
                    blocks.append(block)
                continue
            terminal = self.shown.get(block["terminalId"], (None,))[0]
            text = terminal.output()["output"] if terminal else ""
            blocks.append({"type": "content", "content": {"type": "text", "text": text}})
        return blocks

    def follow(self, name, terminal):
        if self.defect == "shown-once":
            return
        sent = ""
        while True:
            with terminal.changed:
                terminal.changed.wait_for(lambda: terminal.exit, timeout=0.05)
                ended = terminal.exit
            output = terminal.output()["output"]
            if self.streams:
                if output != sent:
                    self.meta(name, {"terminal_output": {"terminal_id": name, "data": output[len(sent) :]}})
            elif output != sent:
                self.show(name, terminal)
            sent = output
            if ended:
                if self.streams and self.defect != "exit-untold":
                    exit_status = {"terminal_id": name, "exit_code": ended["exitCode"], "signal": ended["signal"]}
                    self.meta(name, {"terminal_exit": exit_status})
                return

    def meta(self, name, meta):
        _, session, call, _ = self.shown[name]
        update = {"sessionUpdate": "tool_call_update", "toolCallId": call, "_meta": meta}
        self.to_editor.send({"jsonrpc": "2.0", "method": "session/update", "params": {"sessionId": session, "update": update}})

    def show(self, name, terminal):
        if name not in self.shown or self.streams:
            return
        _, session, call, content = self.shown[name]
        update = {"sessionUpdate": "tool_call_update", "toolCallId": call, "content": self.as_text(content)}
        self.to_editor.send({"jsonrpc": "2.0", "method": "session/update", "params": {"sessionId": session, "update": update}})


def check_create(params, defect):
    command, args, env = params.get("command"), params.get("args"), params.get("env")
    if not isinstance(command, str) or not command or "\0" in command:
        raise invalid("command must be a string")
    if defect == "null-args-refused" and args is None and "args" in params:
        raise invalid("args must be an array")
    if args is not None and not (isinstance(args, list) and all(isinstance(word, str) and "\0" not in word for word in args)):
        raise invalid("args must be an array of strings")
    if env is not None and not (isinstance(env, list) and all(is_variable(entry) for entry in env)):
        raise invalid("env must be an array of {name, value}")
    cwd = params.get("cwd")
    relative_is_fine = defect == "relative-cwd-taken"
    if cwd is not None and (not isinstance(cwd, str) or "\0" in cwd or not (cwd.startswith("/") or relative_is_fine)):
        raise invalid("cwd must be an absolute path")
    limit = params.get("outputByteLimit")
    if limit is not None and (isinstance(limit, bool) or not isinstance(limit, int) or limit < 0):
        raise invalid("outputByteLimit must be an unsigned integer")


def is_variable(entry):
    if not isinstance(entry, dict):
        return False
    name, value = entry.get("name"), entry.get("value")
    return (
        isinstance(name, str)
        and isinstance(value, str)
        and name != ""
        and "=" not in name
        and "\0" not in name
        and "\0" not in value
    )


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--defect")
    parser.add_argument("agent", nargs="+")
    arguments = parser.parse_args()
    # A shell that starts this in the background has these ignored, and commands inherit ignored signals.
    for number in (signal.SIGINT, signal.SIGQUIT):
        signal.signal(number, signal.SIG_DFL)
    Backend(arguments.defect, arguments.agent).run()


main()
