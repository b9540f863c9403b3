#!/usr/bin/env python3
"""Runs a program as on a kernel that has no sock_diag(7): socket(2) refuses NETLINK_SOCK_DIAG for it and for all that it starts."""

import ctypes
import os
import struct
import sys

LD_WORD, JUMP_EQUAL, RETURN = 0x20, 0x15, 0x06
AF_NETLINK, NETLINK_SOCK_DIAG, EPROTONOSUPPORT = 16, 4, 93
ALLOW, ERRNO = 0x7FFF0000, 0x00050000
SYS_SOCKET = {"x86_64": 41, "aarch64": 198}[os.uname().machine]
# Of struct seccomp_data: the call's number, and the low words of its first and third argument.
program = [
    (LD_WORD, 0, 0, 0),
    (JUMP_EQUAL, 0, 5, SYS_SOCKET),
    (LD_WORD, 0, 0, 16),
    (JUMP_EQUAL, 0, 3, AF_NETLINK),
    (LD_WORD, 0, 0, 32),
    (JUMP_EQUAL, 0, 1, NETLINK_SOCK_DIAG),
    (RETURN, 0, 0, ERRNO | EPROTONOSUPPORT),
    (RETURN, 0, 0, ALLOW),
]
code = ctypes.create_string_buffer(b"".join(struct.pack("=HBBI", *one) for one in program))
filters = ctypes.create_string_buffer(struct.pack("@HP", len(program), ctypes.addressof(code)))
libc = ctypes.CDLL(None, use_errno=True)
PR_SET_SECCOMP, MODE_FILTER = 22, 2
if libc.prctl(PR_SET_SECCOMP, MODE_FILTER, ctypes.c_void_p(ctypes.addressof(filters)), 0, 0) != 0:
    raise OSError(ctypes.get_errno(), "prctl(PR_SET_SECCOMP)")
binary = os.environ["PROVOST_TEST_BINARY"]
os.execv(binary, [binary, *sys.argv[1:]])
