# Forms of requests in TLS that the proxy opens. One line for each: its name, and what came of it.
import socket, ssl, struct

PORT = 19443
HOST = f"vault.test:{PORT}"


def tunnel(name="vault.test", sni="vault.test", protocols=("http/1.1",)):
    connection = socket.create_connection(("127.0.0.1", 3128), 20)
    connection.sendall(f"CONNECT {name}:{PORT} HTTP/1.1\r\nHost: {name}:{PORT}\r\n\r\n".encode())
    head = b""
    while b"\r\n\r\n" not in head:
        part = connection.recv(1)
        if not part:
            raise OSError("closed")
        head += part
    if b" 200 " not in head:
        raise OSError("refused")
    context = ssl.create_default_context(cafile="/run/provost/certificates/bundle.pem")
    context.check_hostname = False
    if sni != "vault.test":
        context.verify_mode = ssl.CERT_NONE
    context.set_alpn_protocols(list(protocols))
    secure = context.wrap_socket(connection, server_hostname=sni)
    secure.settimeout(5)
    return secure


def read(connection):
    data = b""
    try:
        while part := connection.recv(65536):
            data += part
    except OSError:
        pass
    return data


def send(text, **how):
    connection = tunnel(**how)
    connection.sendall(text.encode() if isinstance(text, str) else text)
    data = read(connection)
    if b"SERVED" in data:
        return f"served {data.count(b'SERVED')} {data!r}"
    return data[9:].decode("latin-1").replace("\r\n", " ") if data.startswith(b"HTTP/1.1 ") else f"refused {data!r}"


def get(head, target="/v1/x"):
    return f"GET {target} HTTP/1.1\r\n" + "".join(f"{line}\r\n" for line in head) + "Connection: close\r\n\r\n"


def websocket(path="/ws"):
    connection = tunnel()
    connection.sendall((f"GET {path} HTTP/1.1\r\nHost: {HOST}\r\nConnection: keep-alive, Upgrade\r\nUpgrade: websocket\r\n"
                        "Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\nSec-WebSocket-Version: 13\r\n\r\n").encode())
    head = b""
    while b"\r\n\r\n" not in head:
        part = connection.recv(4096)
        if not part:
            break
        head += part
    if b" 101 " not in head:
        return head[9:].decode("latin-1").replace("\r\n", " ")
    connection.sendall(b"ping")
    return connection.recv(4096).decode()


def frame(kind, flags, stream, payload):
    return struct.pack(">I", len(payload))[1:] + bytes([kind, flags]) + struct.pack(">I", stream) + payload


def h2(headers):
    """A request of HTTP/2 whose headers are literals, none of which is indexed."""
    connection = tunnel(protocols=("h2",))
    block = b"".join(b"\0" + bytes([len(name)]) + name.encode() + bytes([len(value)]) + value.encode() for name, value in headers)
    connection.sendall(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + frame(4, 0, 0, b"") + frame(1, 5, 1, block))
    data = read(connection)
    at, status, body = 0, "none", b""
    while at + 9 <= len(data):
        length, kind, flags = struct.unpack(">I", b"\0" + data[at:at + 3])[0], data[at + 3], data[at + 4]
        payload = data[at + 9:at + 9 + length]
        if kind == 1:
            status = {0x88: "200", 0x8c: "400"}.get(payload[0], f"head {payload[:8].hex()}")
        elif kind == 0:
            body += payload
        elif kind in (3, 7):
            status = f"reset {payload.hex()}"
        at += 9 + length
    return f"served {body.count(b'SERVED')}" if status == "200" else f"{status} {body!r}"


H2 = [(":method", "GET"), (":scheme", "https"), (":path", "/v1/x")]
SECOND = f"GET /v2/SECOND HTTP/1.1\r\nHost: {HOST}\r\n\r\n"
FORMS = {
    "plain": lambda: send(get([f"Host: {HOST}"])),
    "absolute": lambda: send(get([f"Host: {HOST}"], f"https://{HOST}/v1/x")),
    "keep-alive": lambda: send(f"GET /v1/a HTTP/1.1\r\nHost: {HOST}\r\n\r\n" + get([f"Host: {HOST}"])),
    "websocket": websocket,
    "Host of another": lambda: send(get(["Host: carried.test:19443"])),
    "Host twice": lambda: send(get([f"Host: {HOST}", "Host: carried.test:19443"])),
    "no Host": lambda: send(get([])),
    "Host without its port": lambda: send(get(["Host: vault.test"])),
    "absolute of another": lambda: send(get([f"Host: {HOST}"], "https://carried.test:19443/v1/x")),
    "absolute by http": lambda: send(get([f"Host: {HOST}"], f"http://{HOST}/v1/x")),
    "CONNECT inside": lambda: send(f"CONNECT {HOST} HTTP/1.1\r\nHost: {HOST}\r\n\r\n"),
    "length and chunked": lambda: send(
        f"POST /v1/x HTTP/1.1\r\nHost: {HOST}\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n{SECOND}"
    ),
    "two lengths": lambda: send(
        f"POST /v1/x HTTP/1.1\r\nHost: {HOST}\r\nContent-Length: 0\r\nContent-Length: {len(SECOND)}\r\n\r\n{SECOND}"
    ),
    # What stands behind the body is the next request, and judged as one.
    "smuggled behind a body": lambda: second_of(
        f"POST /v1/x HTTP/1.1\r\nHost: {HOST}\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"
    ),
    "h2c": lambda: send(get([f"Host: {HOST}", "Upgrade: h2c", "HTTP2-Settings: AAMAAABkAARAAAAAAAIAAAAA"])),
    "websocket elsewhere": lambda: websocket("/v2/ws"),
    "no SNI": lambda: send(get([f"Host: {HOST}"]), sni=None),
    "SNI of another": lambda: send(get([f"Host: {HOST}"]), sni="carried.test"),
    "SNI below": lambda: send(get([f"Host: {HOST}"]), sni="a.vault.test"),
    "no HTTP": lambda: send(b"\0\1\2SSH-2.0-x\r\n\r\n"),
    "h2": lambda: h2(H2 + [(":authority", HOST)]),
    "h2 of another": lambda: h2(H2 + [(":authority", "carried.test:19443")]),
    "h2 of two hosts": lambda: h2(H2 + [(":authority", HOST), ("host", "carried.test:19443")]),
}


def second_of(first):
    """The answer to a second request on the connection."""
    connection = tunnel()
    connection.sendall((first + f"GET /v2 HTTP/1.1\r\nHost: {HOST}\r\nConnection: close\r\n\r\n").encode())
    answers = read(connection).split(b"HTTP/1.1 ")
    return answers[2].decode("latin-1").replace("\r\n", " ") if len(answers) == 3 else f"{len(answers) - 1} answers {answers!r}"


def run(forms):
    for form, attempt in forms.items():
        try:
            result = attempt()
        except OSError as error:
            result = f"refused {error}"
        print(f"{form}: {result}".replace("\n", " "), flush=True)


if __name__ == "__main__":
    run(FORMS)
