# Attacks on the proxies of a sandbox. One line of JSON for each: its name, and what came of it.
import base64, ctypes, json, os, socket, ssl, struct, sys

address = sys.argv[1]
TIMEOUT = 20


# Where a proxy is that stands for that of the sandbox.
INSTEAD = {3128: os.environ.get("INSTEAD_OF_HTTP"), 1080: os.environ.get("INSTEAD_OF_SOCKS")}


def proxy(port=3128):
    connection = socket.create_connection(("127.0.0.1", int(INSTEAD[port] or port)), TIMEOUT)
    connection.settimeout(TIMEOUT)
    return connection


def read(connection):
    data = b""
    try:
        while True:
            part = connection.recv(65536)
            if not part:
                break
            data += part
            if b"SERVED" in data and data.endswith(b"\n"):
                break
    except OSError as error:
        data += b" " + type(error).__name__.encode()
    return data


def outcome(data):
    if b"SERVED" in data:
        return "served"
    head = data.split(b"\r\n\r\n")[0].decode("latin-1")
    rule = [line.split(": ")[1] for line in head.split("\r\n") if line.lower().startswith("provost-rule: ")]
    if rule:
        return rule[0]
    return "closed" if not data else data[:60].decode("latin-1")


def send(text, port=3128):
    connection = proxy(port)
    connection.sendall(text if isinstance(text, bytes) else text.encode())
    return outcome(read(connection))


GET = b"GET / HTTP/1.1\r\nHost: registry.test:18080\r\nConnection: close\r\n\r\n"


def connect(target, then=GET):
    """CONNECT, and what then comes."""
    target = target if isinstance(target, bytes) else target.encode()
    connection = proxy()
    connection.sendall(b"CONNECT " + target + b" HTTP/1.1\r\nHost: " + target + b"\r\n\r\n")
    head = b""
    while b"\r\n\r\n" not in head:
        part = connection.recv(65536)
        if not part:
            return outcome(head)
        head += part
    if not head.startswith(b"HTTP/1.1 200"):
        return outcome(head)
    connection.sendall(then)
    return outcome(read(connection))


def socks(host, port=18080, kind=3, then=GET):
    """SOCKS5 by name (3) or address (1, 4)."""
    connection = proxy(1080)
    connection.sendall(b"\5\1\0")
    if connection.recv(2) != b"\5\0":
        return "no greeting"
    host = host if isinstance(host, bytes) else host.encode()
    host = bytes([len(host)]) + host if kind == 3 else host
    connection.sendall(b"\5\1\0" + bytes([kind]) + host + struct.pack(">H", port))
    answer = connection.recv(10)
    if len(answer) < 2 or answer[1] != 0:
        return f"socks {answer[1] if len(answer) > 1 else 'closed'}"
    connection.sendall(then)
    return outcome(read(connection))


def hello(name, ech=False, twice=False):
    def vector(size, data):
        return struct.pack(">I", len(data))[4 - size:] + data

    def extension(kind, data):
        return struct.pack(">H", kind) + vector(2, data)

    sni = extension(0, vector(2, b"\0" + vector(2, name))) if name is not None else b""
    extensions = sni + (sni if twice else b"") + (extension(0xfe0d, b"\0\1") if ech else b"")
    body = b"\3\3" + bytes(32) + vector(1, b"") + vector(2, b"\x13\1") + vector(1, b"\0") + vector(2, extensions)
    return b"\x16\3\1" + vector(2, b"\1" + vector(3, body))


def tls(target, name):
    """A whole handshake through a tunnel, with this name."""
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    connection = proxy()
    connection.sendall(f"CONNECT {target}:18443 HTTP/1.1\r\nHost: {target}\r\n\r\n".encode())
    if not connection.recv(65536).startswith(b"HTTP/1.1 200"):
        return "refused"
    try:
        with context.wrap_socket(connection, server_hostname=name) as secure:
            secure.sendall(b"GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
            return outcome(read(secure))
    except OSError as error:
        return "access denied" if "ACCESS_DENIED" in str(error).upper().replace(" ", "_") else type(error).__name__


def direct(family, target, port, kind=socket.SOCK_STREAM, protocol=0):
    try:
        connection = socket.socket(family, kind, protocol)
        connection.settimeout(5)
        connection.connect((target, port))
        connection.sendall(GET)
        return outcome(read(connection)) if kind == socket.SOCK_STREAM else connection.recv(100).decode()
    except OSError as error:
        return "errno " + (error.strerror or type(error).__name__)


def get(target, headers, version="1.1"):
    return send(f"GET {target} HTTP/{version}\r\n" + "".join(f"{h}\r\n" for h in headers) + "Connection: close\r\n\r\n")


def keep_alive(first, second):
    """Two requests on one connection: what comes of the second one."""
    connection = proxy()
    connection.sendall(f"GET http://{first}/ HTTP/1.1\r\nHost: {first}\r\n\r\n".encode())
    if b"SERVED" not in read(connection):
        return "the first one failed"
    connection.sendall(f"GET http://{second}/ HTTP/1.1\r\nHost: {second}\r\nConnection: close\r\n\r\n".encode())
    return outcome(read(connection))


def smuggle(text):
    """How many requests of these bytes a server has answered."""
    connection = proxy()
    connection.settimeout(3)
    connection.sendall(text)
    return f"{read_all(connection).count(b'SERVED')} served"


def read_all(connection):
    data = b""
    try:
        while part := connection.recv(65536):
            data += part
    except OSError:
        pass
    return data


def redirected():
    """Follows a redirect of an allowed host to another."""
    connection = proxy()
    connection.sendall(
        b"GET http://registry.test:18080/redirect/other.test:18080 HTTP/1.1\r\nHost: registry.test:18080\r\n"
        b"Connection: close\r\n\r\n"
    )
    answer = read_all(connection).decode()
    location = [line[10:] for line in answer.split("\r\n") if line.lower().startswith("location: ")]
    if not location:
        return "no redirect: " + answer[:40]
    return get(location[0], ["Host: other.test:18080"])


def by_name_server(reach):
    """Asks an allowed host for the address of a refused name, and goes there."""
    connection = proxy()
    connection.sendall(
        b"GET http://registry.test:18080/dns-query?name=other.test HTTP/1.1\r\nHost: registry.test:18080\r\n"
        b"Connection: close\r\n\r\n"
    )
    found = read_all(connection).decode().split("\r\n\r\n")[-1]
    return reach(found) if found == address else "no address: " + found[:40]


def raw(family, protocol):
    """A packet that the kernel did not write."""
    try:
        socket.socket(family, socket.SOCK_RAW, protocol)
        return "served"
    except OSError as error:
        return "errno " + (error.strerror or type(error).__name__)


def bind(port):
    try:
        socket.create_server(("127.0.0.1", port))
        return "bound"
    except OSError as error:
        return "errno " + error.strerror


def abstract():
    """A socket of the host's that has a name and no file."""
    try:
        connection = socket.socket(socket.AF_UNIX)
        connection.settimeout(5)
        connection.connect(f"\0provost-test-{address}")
        return outcome(read(connection))
    except OSError as error:
        return "errno " + (error.strerror or type(error).__name__)


def in_child(enter):
    """What a direct connection comes to in another namespace, which a process enters that has only this to do."""
    receiving, sending = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            enter()
            result = direct(socket.AF_INET, address, 18080)
        except OSError as error:
            result = "errno " + (error.strerror or type(error).__name__)
        os.write(sending, result.encode())
        os._exit(0)
    os.close(sending)
    os.waitpid(child, 0)
    return os.read(receiving, 1000).decode()


LIBC = ctypes.CDLL(None, use_errno=True)


def checked(result):
    if result != 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))


def unshare(flags):
    checked(LIBC.unshare(flags))


def enter_first_network():
    """The network namespace of process 1: outside the host's."""
    checked(LIBC.setns(os.open("/proc/1/ns/net", os.O_RDONLY), 0x40000000))


NUMBER = struct.unpack(">I", socket.inet_aton(address))[0]
PARTS = address.split(".")
SIX = ":".join(f"{int(PARTS[i]):02x}{int(PARTS[i + 1]):02x}" for i in (0, 2))

CASES = {
    # What works.
    "connect": lambda: connect("registry.test:18080"),
    "connect below": lambda: connect("a.b.files.test:18080", GET.replace(b"registry.test", b"a.b.files.test")),
    "connect upper case and dot": lambda: connect("REGISTRY.test.:18080"),
    "http": lambda: get("http://registry.test:18080/", ["Host: registry.test:18080"]),
    "http 1.0": lambda: get("http://registry.test:18080/", [], "1.0"),
    "socks": lambda: socks("registry.test"),
    "tls": lambda: tls("registry.test", "registry.test"),
    "any protocol": lambda: connect("plain.test:18080", GET),
    "keep-alive": lambda: keep_alive("registry.test:18080", "registry.test:18080"),
    "direct by a name": lambda: direct(socket.AF_INET, "registry.test", 18080),
    "address": lambda: connect(f"{address}:18081", GET),
    # Names.
    "another name": lambda: connect("other.test:18080"),
    "denied name": lambda: connect("secret.files.test:18080"),
    "denied name, upper case": lambda: connect("SECRET.Files.test.:18080"),
    "parent of names": lambda: connect("files.test:18080"),
    "ending": lambda: connect("xfiles.test:18080"),
    "name in front": lambda: connect("registry.test.other.test:18080"),
    "data in labels": lambda: connect("c2VjcmV0.other.test:18080"),
    "another port": lambda: connect("registry.test:18082"),
    "no port": lambda: connect("registry.test"),
    "port 0": lambda: connect("registry.test:0"),
    "port above": lambda: connect("registry.test:83616"),
    "two ports": lambda: connect("registry.test:18080:18080"),
    "user": lambda: connect("registry.test@other.test:18080"),
    "user and port": lambda: connect("registry.test:18080@other.test:18080"),
    "NUL": lambda: connect(b"registry.test\0.other.test:18080"),
    "percent NUL": lambda: connect("registry.test%00.other.test:18080"),
    "control": lambda: connect(b"registry.test\x0b.other.test:18080"),
    "beyond ASCII": lambda: connect("registry。test:18080"),
    "full width": lambda: connect("ｒegistry.test:18080"),
    "long label": lambda: connect("a" * 64 + ".files.test:18080"),
    "long name": lambda: connect("a." * 130 + "files.test:18080"),
    "star": lambda: connect("*.files.test:18080"),
    "empty label": lambda: connect("a..files.test:18080"),
    # Addresses.
    "address in rule's network": lambda: connect(f"{address}:18080"),
    "decimal": lambda: connect(f"{NUMBER}:18080"),
    "hexadecimal": lambda: connect(f"0x{NUMBER:x}:18080"),
    "octal": lambda: connect(".".join(f"0{int(part):o}" for part in PARTS) + ":18080"),
    "short": lambda: connect(f"127.{NUMBER & 0xffffff}:18080"),
    "mapped": lambda: connect(f"[::ffff:{address}]:18080"),
    "compatible": lambda: connect(f"[::{address}]:18080"),
    "NAT64": lambda: connect(f"[64:ff9b::{address}]:18080"),
    "6to4": lambda: connect(f"[2002:{SIX}::1]:18080"),
    "loopback": lambda: connect("127.0.0.1:18080"),
    "loopback of IPv6": lambda: connect("[::1]:18080"),
    "localhost": lambda: connect("localhost:18080"),
    "unspecified": lambda: connect("0.0.0.0:18080"),
    "metadata": lambda: connect("169.254.169.254:80"),
    "metadata of IPv6": lambda: connect("[fd00:ec2::254]:80"),
    "private": lambda: connect("10.0.0.1:18080"),
    "multicast": lambda: connect("224.0.0.1:18080"),
    "zone": lambda: connect("[fe80::1%25lo]:18080"),
    "name of a near address": lambda: connect("near.test:18080"),
    "name of a mapped address": lambda: connect("mapped.test:18080"),
    "name of NAT64": lambda: connect("nat64.test:18080"),
    "name of the metadata address": lambda: connect("metadata.test:18080"),
    # SOCKS.
    "socks: another name": lambda: socks("other.test"),
    "socks: NUL": lambda: socks(b"registry.test\0.other.test"),
    "socks: NUL behind": lambda: socks(b"other.test\0registry.test"),
    "socks: control": lambda: socks(b"other.test\r\nregistry.test"),
    "socks: not UTF-8": lambda: socks(b"registry\xff.test"),
    "socks: empty": lambda: socks(b""),
    "socks: address": lambda: socks(socket.inet_aton(address), kind=1),
    "socks: mapped": lambda: socks(socket.inet_pton(socket.AF_INET6, f"::ffff:{address}"), kind=4),
    "socks: address as name": lambda: socks(address),
    "socks: decimal": lambda: socks(str(NUMBER)),
    # Agreement.
    "SNI of another host": lambda: tls("registry.test", "other.test"),
    "no SNI": lambda: tls("registry.test", None),
    "ECH": lambda: connect("registry.test:18443", hello(b"registry.test", ech=True)),
    "two SNI": lambda: connect("registry.test:18443", hello(b"registry.test", twice=True)),
    "SNI with NUL": lambda: connect("registry.test:18443", hello(b"registry.test\0.other.test")),
    "SNI by socks": lambda: socks("registry.test", 18443, then=hello(b"other.test")),
    "Host in a tunnel": lambda: connect("registry.test:18080", GET.replace(b"registry.test", b"other.test")),
    "absolute target in a tunnel": lambda: connect(
        "registry.test:18080", GET.replace(b"GET /", b"GET http://other.test:18080/")
    ),
    "Host by socks": lambda: socks("registry.test", then=GET.replace(b"registry.test", b"other.test")),
    "no HTTP and no TLS": lambda: connect("registry.test:18080", b"SSH-2.0-x\r\n\r\n"),
    "Host against target": lambda: get("http://registry.test:18080/", ["Host: other.test:18080"]),
    "Host of another port": lambda: get("http://registry.test:18080/", ["Host: registry.test"]),
    "two Hosts": lambda: get("http://registry.test:18080/", ["Host: registry.test:18080", "Host: other.test:18080"]),
    "no Host": lambda: get("http://registry.test:18080/", []),
    "user in target": lambda: get("http://registry.test:x@other.test:18080/", ["Host: other.test:18080"]),
    "https to the HTTP proxy": lambda: get("https://registry.test:18443/", ["Host: registry.test:18443"]),
    "no absolute target": lambda: get("/", ["Host: registry.test:18080"]),
    "refused host": lambda: get("http://other.test:18080/", ["Host: other.test:18080"]),
    "both framings": lambda: smuggle(
        b"POST http://registry.test:18080/ HTTP/1.1\r\nHost: registry.test:18080\r\nContent-Length: 4\r\n"
        b"Transfer-Encoding: chunked\r\n\r\n0\r\n\r\nGET http://other.test:18080/ HTTP/1.1\r\nHost: other.test\r\n\r\n"
    ),
    "two lengths": lambda: send(
        b"POST http://registry.test:18080/ HTTP/1.1\r\nHost: registry.test:18080\r\nContent-Length: 4\r\n"
        b"Content-Length: 0\r\n\r\n0\r\n\r\n"
    ),
    "folded header": lambda: get("http://registry.test:18080/", ["Host: registry.test:18080", " other.test"]),
    "keep-alive to a refused host": lambda: keep_alive("registry.test:18080", "other.test:18080"),
    # Without a proxy.
    "direct": lambda: direct(socket.AF_INET, address, 18080),
    "direct to the host's loopback": lambda: direct(socket.AF_INET, "127.0.0.1", 18080),
    "direct by IPv6": lambda: direct(socket.AF_INET6, f"::ffff:{address}", 18080),
    "direct by another name": lambda: direct(socket.AF_INET, "other.test", 18080),
    "UDP": lambda: direct(socket.AF_INET, address, 18080, socket.SOCK_DGRAM),
    "DNS": lambda: direct(socket.AF_INET, "1.1.1.1", 53, socket.SOCK_DGRAM),
    "ICMP": lambda: direct(socket.AF_INET, "1.1.1.1", 0, socket.SOCK_DGRAM, socket.IPPROTO_ICMP),
    "raw IP": lambda: raw(socket.AF_INET, socket.IPPROTO_RAW),
    "raw ICMP": lambda: raw(socket.AF_INET, socket.IPPROTO_ICMP),
    "raw packets": lambda: raw(socket.AF_PACKET, socket.htons(3)),
    "redirect to a refused host": redirected,
    "names over HTTPS, by address": lambda: by_name_server(lambda found: direct(socket.AF_INET, found, 18080)),
    "names over HTTPS, by the proxy": lambda: by_name_server(lambda found: connect(f"{found}:18080")),
    "abstract socket": abstract,
    "another user namespace": lambda: in_child(lambda: unshare(0x10000000)),
    "another network namespace": lambda: in_child(lambda: unshare(0x40000000)),
    "both namespaces": lambda: in_child(lambda: unshare(0x50000000)),
    "the network namespace of process 1": lambda: in_child(enter_first_network),
    "HTTP/2 in a tunnel": lambda: connect(
        "registry.test:18080", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes(3) + b"\4\0" + bytes(4)
    ),
    "HTTP/2 to the proxy": lambda: send(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes(3) + b"\4\0" + bytes(4)),
    "a listener in the proxy's place": lambda: bind(3128),
    "a listener in the SOCKS proxy's place": lambda: bind(1080),
}


def attempt(case):
    try:
        return CASES[case]()
    except Exception as error:
        return f"{type(error).__name__}: {error}"


for case in sys.argv[2:] or CASES:
    print(json.dumps([case, attempt(case)]), flush=True)
