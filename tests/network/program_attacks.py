"""Ways to have a connection that a rule gives to one program alone. One line for each: its name, and the status of CONNECT."""

import ctypes
import os
import shutil
import socket
import subprocess
import sys
import threading
import urllib.parse

CURL = os.path.realpath("/usr/bin/curl")
PROXY = urllib.parse.urlsplit(os.environ["HTTP_PROXY"])
TARGET = "own.test:18080"
libc = ctypes.CDLL(None, use_errno=True)
CLONE_FILES = 0x400
SYS_EXIT = {"x86_64": 60, "aarch64": 93}[os.uname().machine]


def connect():
    return socket.create_connection((PROXY.hostname, PROXY.port), 30)


def status(connection):
    connection.sendall(f"CONNECT {TARGET} HTTP/1.1\r\nHost: {TARGET}\r\n\r\n".encode())
    return connection.recv(100).split()[1].decode()


def helper(connection):
    """The program that is allowed, which has the connection, too, and does nothing with it."""
    connection.set_inheritable(True)
    return subprocess.Popen([CURL, "-s", "--max-time", "30", f"telnet://{PROXY.hostname}:{PROXY.port}"],
                            stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, close_fds=False)


def shown(connection):
    other = helper(connection)
    try:
        return status(connection)
    finally:
        other.kill()
        other.wait()


def in_a_thread(prepare):
    """In a thread that has descriptors of its own, which the process's own table does not have."""
    said = []

    def run():
        prepare()
        if libc.unshare(CLONE_FILES) != 0:
            said.append(f"errno {ctypes.get_errno()}")
            return
        said.append(shown(connect()))

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    return said[0]


def without_its_first_thread():
    """A process whose first thread has ended shows no descriptors of its own."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        def run():
            os.write(writing, shown(connect()).encode())
            os._exit(0)

        threading.Thread(target=run).start()
        libc.syscall(SYS_EXIT, 0)
    os.close(writing)
    said = os.read(reading, 100).decode()
    os.waitpid(child, 0)
    return said


def fetch(command):
    done = subprocess.run(command + ["-s", "-o", "/dev/null", "-w", "%{http_connect}", "-p", "-x",
                                     f"http://{PROXY.hostname}:{PROXY.port}", f"http://{TARGET}/"],
                          stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    return done.stdout.decode() or "not run"


def copied():
    shutil.copy(CURL, "curl")
    return fetch(["./curl"])


def in_memory():
    memory = os.memfd_create("curl", 0)
    with open(CURL, "rb") as program:
        os.sendfile(memory, program.fileno(), 0, os.fstat(program.fileno()).st_size)
    try:
        return run_descriptor(memory)
    finally:
        os.close(memory)


def run_descriptor(memory):
    os.set_inheritable(memory, True)
    try:
        return fetch([f"/proc/{os.getpid()}/fd/{memory}"])
    except OSError as error:
        return f"not run: {error.strerror}"


def by_its_loader():
    loaders = [path for path in ("/lib64/ld-linux-x86-64.so.2", "/lib/ld-linux-aarch64.so.1") if os.path.exists(path)]
    return fetch([loaders[0], CURL]) if loaders else "not run"


IPPROTO_MPTCP = 262


def by_mptcp():
    """A socket that is no TCP socket to its program."""
    try:
        connection = socket.socket(socket.AF_INET, socket.SOCK_STREAM, IPPROTO_MPTCP)
    except OSError as error:
        return f"not run: {error.strerror}"
    connection.settimeout(30)
    connection.connect((PROXY.hostname, PROXY.port))
    return shown(connection)


def by_ipv6():
    """A socket of IPv6, to the mapped address."""
    try:
        connection = socket.socket(socket.AF_INET6, socket.SOCK_STREAM)
        connection.connect((f"::ffff:{PROXY.hostname}", PROXY.port))
    except OSError as error:
        return f"not run: {error.strerror}"
    connection.settimeout(30)
    return shown(connection)


def by_an_orphan():
    """A process whose parent, which has connected, is gone."""
    connection = connect()
    other = helper(connection)
    reading, writing = os.pipe()
    if os.fork() == 0:
        if os.fork():
            os._exit(0)
        os.write(writing, status(connection).encode())
        os._exit(0)
    connection.close()
    os.close(writing)
    os.wait()
    said = os.read(reading, 100).decode()
    other.kill()
    other.wait()
    return said


FORMS = {
    "itself": lambda: status(connect()),
    "with a helper": lambda: shown(connect()),
    "a thread's own descriptors": lambda: in_a_thread(lambda: None),
    "without its first thread": without_its_first_thread,
    "MPTCP": by_mptcp,
    "IPv6": by_ipv6,
    "an orphan": by_an_orphan,
    "a copy": copied,
    "a copy in memory": in_memory,
    "by its loader": by_its_loader,
    "allowed": lambda: fetch([CURL]),
}
for name in sys.argv[1:] or FORMS:
    try:
        result = FORMS[name]()
    except OSError as error:
        result = f"not run: {error.strerror}"
    print(f"{name}: {result}", flush=True)
