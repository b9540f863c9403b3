# Questions to the resolver of a sandbox, and connections to what it answers. One line of JSON for each: its name, and what came of it.
import json, socket, struct, sys

TIMEOUT = 20
A, TXT, MX, AAAA, PTR, HTTPS, ANY = 1, 16, 15, 28, 12, 65, 255


def question(name, kind=A, flags=0x0100, count=1, kind_class=1):
    labels = b"".join(bytes([len(label)]) + label.encode("latin-1") for label in name.split("."))
    return struct.pack(">6H", 7, flags, count, 0, 0, 0) + labels + b"\0" + struct.pack(">HH", kind, kind_class)


def by_udp(data):
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asking:
        asking.settimeout(TIMEOUT)
        asking.connect(("127.0.0.1", 53))
        asking.send(data)
        return asking.recv(4096)


def by_tcp(data):
    with socket.create_connection(("127.0.0.1", 53), TIMEOUT) as asking:
        asking.sendall(struct.pack(">H", len(data)) + data)
        stream = asking.makefile("rb")
        return stream.read(struct.unpack(">H", stream.read(2))[0])


def ask(data, by=by_udp):
    """The code of the answer, and the addresses in it."""
    answer = by(data)
    number, flags, _, records = struct.unpack(">4H", answer[:8])
    assert number == 7 and flags & 0x8000, answer
    if not records:
        return f"code {flags & 15}"
    first, second = socket.inet_ntoa(answer[-4:]).split(".")[:2]
    return f"code {flags & 15}, {records} in {first}.{int(second) & 254}.0.0"


def address(name):
    return socket.inet_ntoa(by_udp(question(name))[-4:])


def connect(target, port, send=None):
    """What a program gets from there: the answer to these bytes, or why not."""
    try:
        with socket.create_connection((target, port), TIMEOUT) as connection:
            connection.settimeout(TIMEOUT)
            connection.sendall(send or f"GET / HTTP/1.1\r\nHost: {target}:{port}\r\nConnection: close\r\n\r\n".encode())
            data = b""
            while part := connection.recv(65536):
                data += part
            if b"SERVED" in data:
                return "served"
            rule = [line for line in data.split(b"\r\n") if line.lower().startswith(b"provost-rule: ")]
            return rule[0].decode().split(": ")[1] if rule else data[:7].hex() or "closed"
    except OSError as error:
        return type(error).__name__


def get(host):
    return f"GET / HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n".encode()


def hello(name):
    def vector(size, data):
        return struct.pack(">I", len(data))[4 - size:] + data

    sni = struct.pack(">H", 0) + vector(2, vector(2, b"\0" + vector(2, name)))
    body = b"\3\3" + bytes(32) + vector(1, b"") + vector(2, b"\x13\1") + vector(1, b"\0") + vector(2, sni)
    return b"\x16\3\1" + vector(2, b"\1" + vector(3, body))


def listen(target, port):
    try:
        socket.create_server((target, port)).close()
        return "bound"
    except OSError as error:
        return type(error).__name__


CASES = {
    "a name": lambda: ask(question("registry.test")),
    "by TCP": lambda: ask(question("registry.test"), by_tcp),
    "upper case": lambda: str(address("REGISTRY.Test") == address("registry.test")),
    "two names": lambda: str(address("a.files.test") == address("registry.test")),
    "IPv6": lambda: ask(question("registry.test", AAAA)),
    "IPv6 of a refused name": lambda: ask(question("other.test", AAAA)),
    "another name": lambda: ask(question("other.test")),
    "another name by TCP": lambda: ask(question("other.test"), by_tcp),
    "denied name": lambda: ask(question("secret.files.test")),
    "data in labels": lambda: ask(question("c2VjcmV0.other.test")),
    "data in labels below": lambda: ask(question("c2VjcmV0.files.test")),
    "dot in a label": lambda: ask(question("registry_test").replace(b"registry_test", b"registry.test")),
    "NUL in a label": lambda: ask(question("registry.test\0.other.test")),
    "address": lambda: ask(question("127.0.0.1")),
    "TXT": lambda: ask(question("registry.test", TXT)),
    "MX": lambda: ask(question("registry.test", MX)),
    "PTR": lambda: ask(question("1.0.0.127.in-addr.arpa", PTR)),
    "HTTPS": lambda: ask(question("registry.test", HTTPS)),
    "ANY": lambda: ask(question("registry.test", ANY)),
    "CHAOS": lambda: ask(question("version.bind", TXT, kind_class=3)),
    "update": lambda: ask(question("registry.test", flags=0x2900)),
    "two questions": lambda: ask(question("registry.test", count=2)),
    "cut off": lambda: ask(question("registry.test")[:20]),
    "connect": lambda: connect("registry.test", 18080),
    "another port": lambda: connect(address("registry.test"), 18082),
    "address of no name": lambda: connect("198.19.255.254", 18080),
    "name of a near address": lambda: connect("near.test", 18080),
    "name of the metadata address": lambda: connect("metadata.test", 18080),
    "Host of another name": lambda: connect("registry.test", 18080, get("other.test:18080")),
    "Host by address": lambda: connect(address("registry.test"), 18080),
    "SNI of another name": lambda: connect("registry.test", 18443, hello(b"other.test")),
    "a listener in the resolver's place": lambda: listen("127.0.0.1", 53),
    "a listener in a name's place": lambda: listen(address("registry.test"), 18080),
    "a listener on the loopback at a name's port": lambda: listen("127.0.0.1", 18080),
}


def attempt(case):
    try:
        return CASES[case]()
    except Exception as error:
        return f"{type(error).__name__}: {error}"


for case in sys.argv[1:] or CASES:
    print(json.dumps([case, attempt(case)]), flush=True)
