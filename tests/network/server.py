# A server of HTTP on port 18080 and of HTTPS on port 18443, for root also on 443. Says who came, and what was asked; has one package.
import http.server, os, socket, ssl, sys, threading

address, directory = sys.argv[1], sys.argv[2]


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def answer(self):
        body = b""
        if "chunked" in (self.headers.get("transfer-encoding") or ""):
            while True:
                length = int(self.rfile.readline(), 16)
                body += self.rfile.read(length)
                self.rfile.readline()
                if length == 0:
                    break
        else:
            body = self.rfile.read(int(self.headers.get("content-length") or 0))
        names = ",".join(sorted(name.lower() for name in self.headers.keys()))
        if self.path.endswith(".tgz"):
            with open(f"{directory}/package.tgz", "rb") as package:
                content = package.read()
            self.send_response(200)
            self.send_header("content-length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)
            return
        # A proxy without rules passes the whole target on.
        path = "/" + self.path.split("://", 1)[-1].partition("/")[2]
        if path.startswith("/redirect/"):
            self.send_response(302)
            self.send_header("location", "http://" + path.removeprefix("/redirect/") + "/")
            self.send_header("content-length", "0")
            self.end_headers()
            return
        if path.startswith("/dns-query"):
            self.send_response(200)
            self.send_header("content-length", str(len(address)))
            self.end_headers()
            self.wfile.write(address.encode())
            return
        text = f"SERVED {self.command} {self.headers.get('host')} {self.path} {len(body)} [{names}]\n".encode()
        self.send_response(200)
        self.send_header("content-length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    do_GET = do_POST = do_PUT = answer

    def log_message(self, *arguments):
        pass


class Server(http.server.ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 4096


def serve(port, wrap):
    server = Server((address, port), Handler)
    if wrap:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(f"{directory}/cert.pem", f"{directory}/key.pem")
        # The handshake belongs to the connection's own thread.
        server.socket = context.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
    threading.Thread(target=server.serve_forever, daemon=True).start()


serve(18080, False)
serve(18443, True)
if os.geteuid() == 0:
    serve(443, True)
udp = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
udp.bind((address, 18080))
# A socket of the host's without a file: its name is the host's network namespace's.
abstract = socket.socket(socket.AF_UNIX)
abstract.bind(f"\0provost-test-{address}")
abstract.listen(64)


def answer_abstract():
    while True:
        peer = abstract.accept()[0]
        peer.sendall(b"SERVED abstract\n")
        peer.close()


threading.Thread(target=answer_abstract, daemon=True).start()
print("ready", flush=True)
while True:
    data, peer = udp.recvfrom(1000)
    udp.sendto(b"SERVED udp", peer)
