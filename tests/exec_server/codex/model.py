"""A model on the loopback that wants tools called, one after the other, and then is content.

    model.py LOG CALL...

Each CALL is the JSON of an output item of the Responses API, without its ids; in each, TOOL stands for the name of the tool that
runs commands. It streams (SSE) and writes each request's input to LOG. It prints its port and serves until its stdin ends.
"""

import http.server
import json
import sys
import threading

LOG, CALLS = sys.argv[1], [json.loads(call) for call in sys.argv[2:]]


class Model(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    lock = threading.Lock()

    def log_message(self, *arguments):
        pass

    def reply(self, kind, body):
        self.send_response(200)
        self.send_header("content-type", kind)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_GET(self):
        self.reply("application/json", json.dumps({"object": "list", "data": [], "models": []}).encode())

    def do_POST(self):
        length = int(self.headers.get("content-length") or 0)
        request = json.loads(self.rfile.read(length) or b"{}")
        with self.lock, open(LOG, "a") as log:
            tools = [tool.get("name") or tool.get("type") for tool in request.get("tools") or []]
            log.write(json.dumps({"post": self.path, "tools": tools, "input": request.get("input")}) + "\n")
        answered = [item for item in request.get("input") or [] if str(item.get("type", "")).endswith("call_output")]
        number = len(answered)
        if number < len(CALLS):
            item = {"id": f"item_{number}", "call_id": f"call_{number}", "status": "completed", **CALLS[number]}
        else:
            content = [{"type": "output_text", "text": "content", "annotations": []}]
            item = {"type": "message", "id": "last", "role": "assistant", "status": "completed", "content": content}
        usage = {"input_tokens": 1, "input_tokens_details": {"cached_tokens": 0}, "output_tokens": 1,
                 "output_tokens_details": {"reasoning_tokens": 0}, "total_tokens": 2}
        response = {"id": f"response_{number}", "object": "response", "status": "completed", "output": [item], "usage": usage}
        events = [
            {"type": "response.created", "response": {**response, "status": "in_progress", "output": []}},
            {"type": "response.output_item.added", "output_index": 0, "item": item},
            {"type": "response.output_item.done", "output_index": 0, "item": item},
            {"type": "response.completed", "response": response},
        ]
        body = "".join(f"event: {event['type']}\ndata: {json.dumps(event)}\n\n" for event in events)
        self.reply("text/event-stream", body.encode())


server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Model)
threading.Thread(target=server.serve_forever, daemon=True).start()
print(server.server_address[1], flush=True)
sys.stdin.read()
