"""A server at unix sockets of the host, and a client for them. Lines: `who`, `take` (counts the descriptors that came), `give` (sends one),
`big` (sends much)."""

import os
import socket
import struct
import sys
import threading


def serve(listener):
    while True:
        threading.Thread(target=answer, args=(listener.accept()[0],), daemon=True).start()


def answer(peer):
    try:
        while True:
            line, descriptors, _, _ = socket.recv_fds(peer, 4096, 4)
            if not line:
                return
            if line.startswith(b"give"):
                socket.send_fds(peer, [b"SERVED one\n"], [0])
                continue
            if line.startswith(b"big"):
                peer.sendall(b"x" * 200_000)
                continue
            pid, uid, gid = struct.unpack("3i", peer.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))
            said = f"uid={uid} gid={gid}" if line.startswith(b"who") else f"{len(descriptors)} descriptors"
            peer.sendall(f"SERVED {said}\n".encode())
    except OSError:
        pass


def client(path, word):
    try:
        peer = socket.socket(socket.AF_UNIX)
        peer.settimeout(20)
        peer.connect(path)
        descriptors = [os.open("/dev/null", os.O_RDONLY)] if word == "take" else []
        socket.send_fds(peer, [word.encode() + b"\n"], descriptors)
        line, came, _, _ = socket.recv_fds(peer, 4096, 4)
        return f"{line.decode().strip() or 'closed'}{' and a descriptor' if came else ''}"
    except (ConnectionResetError, BrokenPipeError):
        return "closed"
    except OSError as error:
        return type(error).__name__


if sys.argv[1] == "client":
    for path, word in zip(sys.argv[2::2], sys.argv[3::2]):
        print(client(path, word), flush=True)
else:
    for path in sys.argv[1:-1]:
        listener = socket.socket(socket.AF_UNIX)
        listener.bind(path)
        os.chmod(path, 0o666)
        listener.listen(64)
        threading.Thread(target=serve, args=(listener,), daemon=True).start()
    print("ready", flush=True)
    threading.Event().wait()
