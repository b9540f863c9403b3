"""What becomes of connections that are kept, in opened TLS and to a socket of the host. `hold`: opens both, makes the file `ready`, waits for
the file `go`, and then says what they are, and what a new one of each is. `spend`: fetches much, three times in each way that is named."""

import os
import socket
import ssl
import sys
import time
import urllib.parse

NAME, PORT = "vault.test", 19443
SOCKET = "/run/host/open"


def proxy():
    address = urllib.parse.urlsplit(os.environ["HTTPS_PROXY"])
    return socket.create_connection((address.hostname, address.port), 60)


def head(connection):
    data = b""
    while b"\r\n\r\n" not in data:
        part = connection.recv(1)
        if not part:
            return "closed"
        data += part
    return data.split()[1].decode()


def ask(path):
    """The status of a request in a tunnel of its own, and the connection on which its answer goes on."""
    connection = proxy()
    connection.sendall(f"CONNECT {NAME}:{PORT} HTTP/1.1\r\nHost: {NAME}:{PORT}\r\n\r\n".encode())
    status = head(connection)
    if status != "200":
        return status, connection
    context = ssl.create_default_context(cafile="/run/provost/certificates/bundle.pem")
    secure = context.wrap_socket(connection, server_hostname=NAME)
    secure.sendall(f"GET {path} HTTP/1.1\r\nHost: {NAME}:{PORT}\r\nConnection: close\r\n\r\n".encode())
    return head(secure), secure


def length(connection):
    count = 0
    try:
        while part := connection.recv(65536):
            count += len(part)
    except OSError:
        pass
    return count


def open_socket():
    connection = socket.socket(socket.AF_UNIX)
    connection.settimeout(60)
    connection.connect(SOCKET)
    return connection


def served(connection, word=b"who\n"):
    try:
        connection.sendall(word)
        return "served" if connection.recv(4096).startswith(b"SERVED") else "closed"
    except OSError:
        return "closed"


def ticks_after(connection, moment):
    """Whether the host still answers what it has said after this moment."""
    data = b""
    try:
        while part := connection.recv(65536):
            data += part
            whole = data[:data.rfind(b"\n") + 1].split()
            # The first line may be in parts of the chunks' framing.
            times = [float(word) for word in whole if b"." in word]
            if times and times[-1] > moment:
                return "open"
    except OSError:
        pass
    return "closed"


def hold():
    status, ticks = ask("/v1/ticks")
    unix = open_socket()
    print("first", status, served(unix), flush=True)
    open("ready", "w").close()
    until = time.monotonic() + 120
    while not os.path.exists("go") and time.monotonic() < until:
        time.sleep(0.02)
    moment = time.monotonic()
    return ticks_after(ticks, moment), served(unix), ask("/v1/x")[0], served(open_socket())


def spend(way):
    for _ in range(3):
        if way == "tls":
            status, connection = ask("/v1/big")
            # What is refused leaves the connection to the proxy open.
            yield f"{status} {length(connection) if status == '200' else 0}"
        else:
            connection = open_socket()
            try:
                connection.sendall(b"big\n")
                connection.shutdown(socket.SHUT_WR)
            except OSError:
                # What is refused is closed, perhaps before anything was sent.
                pass
            yield f"socket {length(connection)}"


if sys.argv[1] == "hold":
    print("then", *hold(), flush=True)
else:
    for line in spend(sys.argv[2]):
        print(line, flush=True)
