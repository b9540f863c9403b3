"""A model on the loopback that wants one command run, or one after the other, and then is content.

    model.py COMMAND... [--log FILE]

It answers as the Anthropic, Gemini, OpenAI and Mistral services do, whole or streamed: to a request that offers a tool for
commands, with a call of that tool; to one that brings the last command's result, with the result as text. It prints its port
and serves until its stdin ends.
"""

import argparse
import http.server
import json
import re
import sys
import threading

SHELL_TOOL = re.compile(r"bash|shell|terminal|execute|run_command", re.I)
# An agent may hold tools back until its model asks for them.
SEARCH = "loopback-search"
NOT_A_SHELL = re.compile(r"output|kill|stop|read|list", re.I)


def shell_tool(tools):
    """The tool that runs commands: its name and the name of the parameter that takes the line."""
    # Before an agent's own, if it has both.
    for tool in sorted(tools or [], key=lambda tool: "run_command" not in tool.get("function", tool).get("name", "")):
        function = tool.get("function", tool)
        name = function.get("name", "")
        if SHELL_TOOL.search(name) and not NOT_A_SHELL.search(name):
            schema = function.get("parameters") or function.get("input_schema") or {}
            properties = schema.get("properties", {})
            parameter = next((key for key in ("command", "cmd", "script", "commands") if key in properties), "command")
            others = [key for key in schema.get("required", []) if key != parameter]
            more = {key: filler(properties.get(key, {})) for key in others}
            if properties.get(parameter, {}).get("type") == "array":
                return name, parameter, True, more
            return name, parameter, False, more
    return None


def filler(schema):
    """Something for a parameter that a tool insists on."""
    if schema.get("type") in ("number", "integer"):
        return 60000 if "millisecond" in schema.get("description", "") else 60
    return {"boolean": False, "array": [], "object": {}}.get(schema.get("type"), "run it")


def text_of(content):
    if isinstance(content, str):
        return content
    return "".join(text_of(block.get("text", block.get("content", ""))) for block in content or [] if isinstance(block, dict))


class Model(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    wanted, log, lock = [], None, threading.Lock()

    def log_message(self, *arguments):
        pass

    def note(self, what):
        if self.log:
            with self.lock, open(self.log, "a") as file:
                file.write(json.dumps(what) + "\n")

    def do_HEAD(self):
        self.reply({})

    def do_GET(self):
        self.note({"get": self.path})
        self.reply({"object": "list", "data": [{"id": "loopback", "object": "model"}]})

    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers.get("content-length") or 0)) or b"{}")
        self.note({"post": self.path, "tools": [t.get("function", t).get("name") for t in body.get("tools") or []],
                   "last": (body.get("messages") or [{}])[-1]})
        if self.path.split("?")[0].endswith("/messages"):
            self.anthropic(body)
        elif self.path.split("?")[0].endswith("/chat/completions"):
            self.openai(body)
        elif self.path.split("?")[0].endswith(("enerateContent")):
            self.gemini(body)
        else:
            self.reply({"input_tokens": 1})

    def anthropic(self, body):
        results = [
            text_of(block.get("content"))
            for message in body.get("messages", [])
            if isinstance(message.get("content"), list)
            for block in message["content"]
            if block.get("type") == "tool_result"
        ]
        tool = shell_tool(body.get("tools"))
        if tool and len(results) < len(self.wanted):
            block = {"type": "tool_use", "id": f"toolu_loopback{len(results)}", "name": tool[0], "input": self.input(tool, len(results))}
        else:
            block = {"type": "text", "text": "The result is: " + (results[-1] if results else "none")}
        reason = "tool_use" if block["type"] == "tool_use" else "end_turn"
        usage = {"input_tokens": 1, "output_tokens": 1}
        message = {"id": "msg_loopback", "type": "message", "role": "assistant", "model": body.get("model", "x"),
                   "content": [block], "stop_reason": reason, "stop_sequence": None, "usage": usage}
        if not body.get("stream"):
            return self.reply(message)
        start = dict(message, content=[], stop_reason=None)
        if block["type"] == "tool_use":
            empty, delta = dict(block, input={}), {"type": "input_json_delta", "partial_json": json.dumps(block["input"])}
        else:
            empty, delta = {"type": "text", "text": ""}, {"type": "text_delta", "text": block["text"]}
        events = [
            {"type": "message_start", "message": start},
            {"type": "content_block_start", "index": 0, "content_block": empty},
            {"type": "content_block_delta", "index": 0, "delta": delta},
            {"type": "content_block_stop", "index": 0},
            {"type": "message_delta", "delta": {"stop_reason": reason, "stop_sequence": None}, "usage": usage},
            {"type": "message_stop"},
        ]
        self.stream("".join(f"event: {event['type']}\ndata: {json.dumps(event)}\n\n" for event in events))

    def openai(self, body):
        answers = [message for message in body.get("messages", []) if message.get("role") == "tool"]
        results = [text_of(message.get("content")) for message in answers if message.get("tool_call_id") != SEARCH]
        tool = shell_tool(body.get("tools"))
        names = [tool.get("function", {}).get("name") for tool in body.get("tools") or []]
        if not tool and not answers and "tool_search" in names:
            tool = ("tool_search", "query", False, {})
        if tool and len(results) < len(self.wanted):
            given = {"query": "select:mcp__provost__run_command"} if tool[0] == "tool_search" else self.input(tool, len(results))
            function = {"name": tool[0], "arguments": json.dumps(given)}
            message = {"role": "assistant", "content": "", "tool_calls": [
                {"index": 0, "id": SEARCH if tool[0] == "tool_search" else f"loopback{len(results) + 1}", "type": "function", "function": function}]}
            reason = "tool_calls"
        else:
            message = {"role": "assistant", "content": "The result is: " + (results[-1] if results else "none")}
            reason = "stop"
        usage = {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2}
        common = {"id": "cmpl-loopback", "created": 1, "model": body.get("model", "x")}
        if not body.get("stream"):
            choice = {"index": 0, "message": message, "finish_reason": reason}
            return self.reply({**common, "object": "chat.completion", "choices": [choice], "usage": usage})
        chunks = [
            {"index": 0, "delta": message, "finish_reason": None},
            {"index": 0, "delta": {"content": ""}, "finish_reason": reason},
        ]
        lines = [json.dumps({**common, "object": "chat.completion.chunk", "choices": [chunk]}) for chunk in chunks]
        lines.append(json.dumps({**common, "object": "chat.completion.chunk", "choices": [], "usage": usage}))
        self.stream("".join(f"data: {line}\n\n" for line in [*lines, "[DONE]"]))

    def gemini(self, body):
        parts = [part for content in body.get("contents", []) for part in content.get("parts", [])]
        results = [part["functionResponse"].get("response", {}) for part in parts if "functionResponse" in part]
        tools = [dict(function, parameters=function.get("parametersJsonSchema") or function.get("parameters") or {})
                 for tool in body.get("tools") or [] for function in tool.get("functionDeclarations", [])]
        tool = shell_tool(tools)
        if tool and len(results) < len(self.wanted):
            part = {"functionCall": {"name": tool[0], "args": self.input(tool, len(results))}}
        else:
            last = results[-1] if results else {}
            part = {"text": "The result is: " + str(last.get("output") or last.get("error") or last or "none")}
        usage = {"promptTokenCount": 1, "candidatesTokenCount": 1, "totalTokenCount": 2}
        candidate = {"index": 0, "content": {"role": "model", "parts": [part]}, "finishReason": "STOP"}
        answer = {"candidates": [candidate], "usageMetadata": usage, "modelVersion": "loopback"}
        if "streamGenerateContent" not in self.path:
            return self.reply(answer)
        self.stream(f"data: {json.dumps(answer)}\n\n")

    def input(self, tool, done):
        _, parameter, takes_list, more = tool
        wanted = self.wanted[done]
        return {**more, parameter: [wanted] if takes_list else wanted}

    def reply(self, value):
        self.send(json.dumps(value).encode(), "application/json")

    def stream(self, text):
        self.send(text.encode(), "text/event-stream")

    def send(self, body, kind):
        self.send_response(200)
        self.send_header("content-type", kind)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("wanted", nargs="+")
    parser.add_argument("--log")
    arguments = parser.parse_args()

    class Wanting(Model):
        wanted, log = arguments.wanted, arguments.log

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Wanting)
    print(server.server_address[1], flush=True)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    sys.stdin.read()


main()
