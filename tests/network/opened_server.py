# Servers of HTTPS that show a certificate of the test's own authority, for the name that is asked for. Say what came, and with which
# headers; answer requests for a websocket; send elsewhere; answer at length, or for as long as a client reads. A server of HTTP on the next
# port.
import base64, hashlib, http.server, os, ssl, sys, threading, time

address, port, directory = sys.argv[1], int(sys.argv[2]), sys.argv[3]
BEARERS = {}


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def say(self, status, text, headers=()):
        data = text.encode()
        self.send_response(status)
        self.send_header("content-length", str(len(data)))
        for name, value in headers:
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(data)

    def answer(self):
        body = b""
        if "chunked" in (self.headers.get("transfer-encoding") or ""):
            while True:
                length = int(self.rfile.readline(), 16)
                body += self.rfile.read(length)
                if length == 0:
                    while self.rfile.readline().strip():
                        pass
                    break
                self.rfile.readline()
        else:
            body = self.rfile.read(int(self.headers.get("content-length") or 0))
        bearer = "|".join(self.headers.get_all("authorization") or [])
        # Which secret came is said by its digest: one that is said itself is masked.
        digest, sent, other = (hashlib.sha256(one).hexdigest()[:16] if one else "-" for one in
                               (bearer.encode(), body, (self.headers.get("x-other") or "").encode()))
        if self.path == "/ws":
            key = self.headers.get("sec-websocket-key") or ""
            accept = hashlib.sha1(key.encode() + b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11").digest()
            self.send_response(101)
            for name, value in (("upgrade", "websocket"), ("connection", "upgrade"),
                                ("sec-websocket-accept", base64.b64encode(accept).decode())):
                self.send_header(name, value)
            self.end_headers()
            while data := self.connection.recv(4096):
                self.connection.sendall(b"ECHO " + data)
            self.close_connection = True
        elif self.path.startswith("/to?"):
            self.say(302, "elsewhere\n", [("location", self.path[4:])])
        elif self.path == "/v1/big":
            self.say(200, "x" * 200_000)
        elif self.path == "/v1/ticks":
            self.send_response(200)
            self.end_headers()
            self.close_connection = True
            # The clock is one for the whole host.
            while True:
                self.wfile.write(f"{time.monotonic()}\n".encode())
                self.wfile.flush()
                time.sleep(0.05)
        elif self.path.partition("?")[0] == "/echo":
            self.say(200, f"ECHO {bearer}\n")
        else:
            names = ",".join(sorted(name.lower() for name in self.headers.keys()))
            protocol = "https" if isinstance(self.connection, ssl.SSLSocket) else "http"
            self.say(200, f"SERVED {protocol} {self.command} {self.headers.get('host')} {self.path} auth={digest} "
                          f"body={sent} other={other} [{names}]\n")

    do_GET = do_POST = do_PUT = do_DELETE = answer

    def log_message(self, *arguments):
        pass


class Server(http.server.ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 512

    def handle_error(self, *arguments):
        pass


def context_of(name):
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(f"{directory}/{name}.pem", f"{directory}/{name}.key")
    context.set_alpn_protocols(["http/1.1"])
    return context


CONTEXTS = {name: context_of(name) for name in ("vault", "expired", "other", "own")}


def choose(connection, name, context):
    kind = {"expired.test": "expired", "wrong.test": "other", "own.test": "own"}.get(name, "vault")
    connection.context = CONTEXTS[kind]


first = context_of("vault")
first.sni_callback = choose
secure = Server((address, port), Handler)
secure.socket = first.wrap_socket(secure.socket, server_side=True, do_handshake_on_connect=False)
plain = Server((address, port + 1), Handler)
for server in (secure, plain):
    threading.Thread(target=server.serve_forever, daemon=True).start()
print("ready", flush=True)
threading.Event().wait()
