"""Sockets of the host that change under their names. `serve NAME...`: as the server of the tests. `ask PATH COUNT`: what so many clients get,
one after the other. `replace PATH`: puts a socket of its own, and then a link, in the place of another one."""

import os
import socket
import sys
import threading


def answer(peer):
    try:
        while line := peer.recv(4096):
            peer.sendall(b"OWN " + line)
    except OSError:
        pass


def ask(path):
    try:
        with socket.socket(socket.AF_UNIX) as peer:
            peer.settimeout(20)
            peer.connect(path)
            peer.sendall(b"who\n")
            return peer.recv(4096).decode().split()[:1] or ["closed"]
    except (ConnectionResetError, BrokenPipeError, ConnectionRefusedError):
        return ["closed"]
    except OSError as error:
        return [type(error).__name__]


def serve(path):
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(path)
    listener.listen(8)
    while True:
        threading.Thread(target=answer, args=(listener.accept()[0],), daemon=True).start()


if sys.argv[1] == "ask":
    for _ in range(int(sys.argv[3])):
        print(*ask(sys.argv[2]), flush=True)
else:
    # The command's own listener, and another of the host's, under the name that a rule allows.
    named, other, inside = sys.argv[2:]
    print("before", *ask(inside), flush=True)
    os.rename(named, named + ".kept")
    threading.Thread(target=serve, args=(named,), daemon=True).start()
    while not os.path.exists(named):
        pass
    print("own", *ask(inside), flush=True)
    os.unlink(named)
    os.rename(other, named)
    print("other", *ask(inside), flush=True)
    os.symlink(named, named + ".link")
    os.rename(named + ".link", named)
    print("link", *ask(inside), flush=True)
