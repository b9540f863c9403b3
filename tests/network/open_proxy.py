# An HTTP and a SOCKS5 proxy without rules, as lenient as a careless one: what attacks come to where nothing forbids them. It knows the
# names of the tests, reads addresses as C libraries do, and takes near addresses (metadata, private) for the server's, as in a network
# where such a service is there.
import socket, sys, threading

address = sys.argv[1]
PORTS = {18080, 18443}


def read_address(text):
    """Whether it is an address, in any form that some library reads."""
    text = text.strip("[]").split("%")[0]
    for read in (lambda: socket.inet_aton(text), lambda: socket.inet_pton(socket.AF_INET6, text)):
        try:
            return bool(read())
        except OSError:
            pass
    return False


def server(host, port):
    """A connection to where the text leads."""
    host = host.split(b"\0")[0].decode("utf-8", "replace").rpartition("@")[2].strip().lower()
    host = host.split(":")[0] if host.count(":") == 1 else host
    is_name = any(host.rstrip(".").endswith(end) for end in (".test", "test", "localhost")) or not host
    is_name = is_name or any(c in host for c in "*%。\x0b\r\ufffd") or len(host) > 63
    if not is_name and not read_address(host):
        raise OSError(f"no such host: {host!r}")
    return socket.create_connection((address, port if port in PORTS else 18080), 20)


def split(authority):
    host, _, port = authority.rpartition(b":")
    return (host, int(port)) if host and port.isdigit() else (authority, 18080)


def copy(source, sink):
    try:
        while data := source.recv(65536):
            sink.sendall(data)
        sink.shutdown(socket.SHUT_WR)
    except OSError:
        pass


def carry(program, upstream):
    threading.Thread(target=copy, args=(upstream, program), daemon=True).start()
    copy(program, upstream)


def http(program):
    head = b""
    while b"\r\n\r\n" not in head:
        part = program.recv(65536)
        if not part:
            return
        head += part
    method, target = head.split(b"\r\n")[0].split(b" ", 2)[:2]
    if method == b"CONNECT":
        upstream = server(*split(target))
        program.sendall(b"HTTP/1.1 200 OK\r\n\r\n")
    else:
        authority = target.split(b"/")[2] if b"://" in target else b"registry.test:18080"
        upstream = server(*split(authority))
        upstream.sendall(head)
    carry(program, upstream)


def socks(program):
    stream = program.makefile("rb")
    stream.read(stream.read(2)[1])
    program.sendall(b"\5\0")
    kind = stream.read(4)[3]
    host = stream.read(stream.read(1)[0]) if kind == 3 else stream.read(4 if kind == 1 else 16)
    if kind != 3:
        host = socket.inet_ntop(socket.AF_INET if kind == 1 else socket.AF_INET6, host).encode()
    upstream = server(host, int.from_bytes(stream.read(2), "big"))
    program.sendall(b"\5\0\0\1" + bytes(6))
    carry(program, upstream)


def listen(serve):
    listener = socket.create_server(("127.0.0.1", 0), backlog=512)

    def accept():
        while True:
            program, _ = listener.accept()
            threading.Thread(target=guarded, args=(serve, program), daemon=True).start()

    threading.Thread(target=accept, daemon=True).start()
    return listener.getsockname()[1]


def guarded(serve, program):
    try:
        serve(program)
    except (OSError, ValueError, IndexError) as error:
        print(f"not carried: {error}", file=sys.stderr, flush=True)
    program.close()


print(listen(http), listen(socks), flush=True)
threading.Event().wait()
