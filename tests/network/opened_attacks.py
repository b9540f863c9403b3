# Further forms of requests in TLS that the proxy opens: framing that can be read in two ways, HTTP/2 by hand, and the place of a secret.
import concurrent.futures, hashlib, os, threading

from forms import FORMS, H2, HOST, SECOND, frame, get, h2, read, run, send, tunnel

PLACEHOLDER = os.environ["VAULT_TOKEN"]
BODY = f"token={PLACEHOLDER}&end=1"


def digest(text):
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def post(head, body, path="/v1/x"):
    return f"POST {path} HTTP/1.1\r\nHost: {HOST}\r\n" + "".join(f"{line}\r\n" for line in head) + "\r\n" + body


def chunked(*parts, trailer=""):
    return "".join(f"{len(part):x}\r\n{part}\r\n" for part in parts) + "0\r\n" + trailer + "\r\n"


def with_body(text):
    """Whether the body came as it was sent."""
    answer = send(text)
    return ("as sent " if f"body={digest(BODY)}" in answer else "otherwise ") + answer


def literal(headers):
    def length(value):
        if len(value) < 127:
            return bytes([len(value)])
        rest, encoded = len(value) - 127, b"\x7f"
        while rest >= 128:
            encoded, rest = encoded + bytes([rest % 128 + 128]), rest // 128
        return encoded + bytes([rest])

    return b"".join(b"\0" + length(name) + name.encode() + length(value) + value.encode() for name, value in headers)


def h2_raw(frames):
    connection = tunnel(protocols=("h2",))
    connection.sendall(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + frame(4, 0, 0, b"") + frames)
    data = read(connection)
    # Answers are plain text in DATA frames.
    return f"served {data.count(b'SERVED')} denied {data.count(b'denied by rule')} {data!r}"


def two_streams(path):
    """A second request next to one that is allowed."""
    first = literal(H2 + [(":authority", HOST)])
    second = literal([(":method", "GET"), (":scheme", "https"), (":path", path), (":authority", HOST)])
    return h2_raw(frame(1, 5, 1, first) + frame(1, 5, 3, second))


def continued(count, size):
    """A head that goes on and on."""
    head = literal(H2 + [(":authority", HOST)])
    more = literal([("x-more", "y" * size)])
    connection = tunnel(protocols=("h2",))
    try:
        connection.sendall(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + frame(4, 0, 0, b"") + frame(1, 1, 1, head))
        for _ in range(count):
            connection.sendall(frame(9, 0, 1, more))
        connection.sendall(frame(9, 4, 1, b""))
    except OSError:
        return "closed"
    data = read(connection)
    return f"served {data.count(b'SERVED')}"


def wrong_protocol(offered, text):
    connection = tunnel(protocols=(offered,))
    connection.sendall(text)
    data = read(connection)
    return f"served {data.count(b'SERVED')} {data[:80]!r}"


def keys():
    """One key for each host, also when it is asked for many times at once."""
    seen = {"vault.test": set(), "a.vault.test": set()}
    failed = []

    def look(name):
        try:
            connection = tunnel(name=name, sni=name)
            seen[name].add(hashlib.sha256(connection.getpeercert(binary_form=True)).hexdigest())
        except OSError as error:
            failed.append(f"{name} {error}")

    threads = [threading.Thread(target=look, args=(name,)) for name in seen for _ in range(12)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    counts = [len(one) for one in seen.values()]
    return f"{counts} {len(set().union(*seen.values()))} {failed}"


PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
LONG = "x" * 100_000
ATTACKS = {
    "h2 by prior knowledge": lambda: wrong_protocol("http/1.1", PREFACE + frame(4, 0, 0, b"") + frame(1, 5, 1, literal(
        H2 + [(":authority", HOST)]))),
    "HTTP/1.1 where h2 was agreed": lambda: wrong_protocol("h2", get([f"Host: {HOST}"]).encode()),
    "h2 elsewhere next to it": lambda: two_streams("/v2/SECOND"),
    "h2 private next to it": lambda: two_streams("/v1/private/SECOND"),
    "h2 by http": lambda: h2([(":method", "GET"), (":scheme", "http"), (":path", "/v1/x"), (":authority", HOST)]),
    "h2 without a path": lambda: h2([(":method", "GET"), (":scheme", "https"), (":authority", HOST)]),
    "h2 with an absolute path": lambda: h2([(":method", "GET"), (":scheme", "https"), (":path", "https://carried.test:19443/any"),
                                            (":authority", HOST)]),
    "h2 CONNECT": lambda: h2([(":method", "CONNECT"), (":authority", "carried.test:19443")]),
    "h2 extended CONNECT": lambda: h2([(":method", "CONNECT"), (":protocol", "websocket"), (":scheme", "https"), (":path", "/ws"),
                                       (":authority", HOST)]),
    "h2 upgrade": lambda: h2(H2 + [(":authority", HOST), ("connection", "upgrade"), ("upgrade", "websocket")]),
    "h2 line end in a header": lambda: h2(H2 + [(":authority", HOST), ("x-a", f"1\r\nx-b: 2\r\n\r\n{SECOND}")]),
    "h2 line end in a path": lambda: h2([(":method", "GET"), (":scheme", "https"), (":path", "/v1/x HTTP/1.1\r\nHost: y"),
                                         (":authority", HOST)]),
    "h2 length of its own": lambda: h2(H2 + [(":authority", HOST), ("content-length", "100")]),
    "h2 transfer-encoding": lambda: h2(H2 + [(":authority", HOST), ("transfer-encoding", "chunked")]),
    "h2 head without end": lambda: continued(400, 4_000),
    "head of 100,000 bytes": lambda: send(get([f"Host: {HOST}", f"X-Long: {LONG}"])),
    "path of 100,000 bytes": lambda: send(get([f"Host: {HOST}"], f"/v1/{LONG}")),
    "a thousand headers": lambda: send(get([f"Host: {HOST}"] + [f"X-{number}: 1" for number in range(1000)])),
    "trailer with a secret's name": lambda: with_body(post(
        ["Transfer-Encoding: chunked", "Trailer: Authorization", "Connection: close"],
        chunked(BODY, trailer="Authorization: Bearer own\r\n"))),
    "trailer that is a request": lambda: send(post(["Transfer-Encoding: chunked"], chunked("x", trailer=SECOND))),
    "Connection names the secret's header": lambda: send(get([f"Host: {HOST}", "Connection: authorization, close"])),
    "Connection names the length": lambda: send(post(
        [f"Content-Length: {len(SECOND)}", "Connection: content-length, close"], SECOND)),
    "Connection names the host": lambda: send(get([f"Host: {HOST}", "Connection: host"])),
    "secret's header in all cases": lambda: send(get(
        [f"Host: {HOST}", "Authorization: a", "authorization: b", "AUTHORIZATION: c"])),
    "space before the colon": lambda: send(post([f"Content-Length : {len(SECOND)}", "Connection: close"], SECOND)),
    "folded line": lambda: send(post(["X-A: b", f" Content-Length: {len(SECOND)}", "Connection: close"], SECOND)),
    "bare line feeds": lambda: send(f"GET /v1/x HTTP/1.1\nHost: {HOST}\nX-A: b\n\n{SECOND}"),
    "chunked twice": lambda: send(post(["Transfer-Encoding: chunked", "Transfer-Encoding: identity"], chunked("x") + SECOND)),
    "chunked by another name": lambda: send(post(["Transfer-Encoding: xchunked"], chunked("x") + SECOND)),
    "chunked after another": lambda: send(post(["Transfer-Encoding: gzip, chunked"], chunked("x") + SECOND)),
    "length with a sign": lambda: send(post([f"Content-Length: +{len(SECOND)}"], SECOND)),
    "lengths in one line": lambda: send(post([f"Content-Length: 0, {len(SECOND)}"], SECOND)),
    "chunk with an extension": lambda: send(post(["Transfer-Encoding: chunked"],
                                                 f"1;a=\"\r\n{SECOND}\"\r\nx\r\n0\r\n\r\n")),
    "chunk of a negative length": lambda: send(post(["Transfer-Encoding: chunked"], f"-1\r\n{SECOND}\r\n0\r\n\r\n")),
    "chunk of too many digits": lambda: send(post(["Transfer-Encoding: chunked"], f"{'0' * 30}1\r\nx\r\n0\r\n\r\n{SECOND}")),
    "HTTP/1.0 chunked": lambda: send(
        f"POST /v1/x HTTP/1.0\r\nHost: {HOST}\r\nTransfer-Encoding: chunked\r\n\r\n{chunked('x')}{SECOND}"),
    "HTTP/0.9": lambda: send("GET /v1/x\r\n\r\n"),
    "websocket with a body": lambda: send(
        f"GET /ws HTTP/1.1\r\nHost: {HOST}\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nContent-Length: {len(SECOND)}\r\n\r\n"
        + SECOND),
    "websocket that is none": lambda: send(
        f"GET /v1/x HTTP/1.1\r\nHost: {HOST}\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n{SECOND}"),
    "tls in tls": lambda: send(bytes([22, 3, 1, 0, 5, 1, 0, 0, 1, 3])),
    "placeholder in a body": lambda: with_body(post([f"Content-Length: {len(BODY)}", "Connection: close"], BODY)),
    "placeholder split over chunks": lambda: with_body(post(
        ["Transfer-Encoding: chunked", "Connection: close"], chunked(BODY[:10], BODY[10:15], BODY[15:]))),
    "placeholder in another header": lambda: (
        "as sent" if f"other={digest(PLACEHOLDER)}" in send(get([f"Host: {HOST}", f"X-Other: {PLACEHOLDER}"])) else "otherwise"),
    "placeholder in the query": lambda: send(get([f"Host: {HOST}"], f"/v1/x?t={PLACEHOLDER}")),
    "keys": keys,
}
# Many of them wait until the other side says nothing any more.
with concurrent.futures.ThreadPoolExecutor(16) as pool:
    list(pool.map(lambda attack: run(dict([attack])), ATTACKS.items()))
run({"plain at the end": FORMS["plain"]})
