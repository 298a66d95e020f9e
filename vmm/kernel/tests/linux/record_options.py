#!/usr/bin/env python3
"""Sets and gets socket options on a real Linux and writes what they gave, one call per line.

Usage: record_options.py > options.txt, without CAP_NET_ADMIN and CAP_NET_RAW. The kernel's tests make the same calls and
compare.
"""

import ctypes
import errno
import os
import socket
import struct

libc = ctypes.CDLL(None, use_errno=True)
SOCKETS = {
    "tcp": (socket.AF_INET, socket.SOCK_STREAM),
    "tcp6": (socket.AF_INET6, socket.SOCK_STREAM),
    "udp": (socket.AF_INET, socket.SOCK_DGRAM),
    "udp6": (socket.AF_INET6, socket.SOCK_DGRAM),
    "unix": (socket.AF_UNIX, socket.SOCK_STREAM),
}
# SO_DEBUG .. SO_DOMAIN without those that depend on the machine or are not modelled on purpose.
SOL_SOCKET = [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 18, 19, 20, 21, 25, 27, 30, 36, 38, 39, 40, 44, 46, 48, 51,
              53, 55, 56, 69, 70, 71, 72, 73, 74, 75]
IP = [1, 2, 3, 5, 8, 10, 11, 12, 13, 15, 18, 19, 20, 22, 23, 24, 25, 26, 33, 34, 49, 50, 250]
IPV6 = [7, 11, 16, 18, 19, 22, 23, 25, 26, 27, 28, 29, 30, 31, 32, 33, 36, 49, 50, 51, 52, 60, 61, 62, 66, 67, 74, 75, 76, 77,
        78, 250]
TCP = [1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 14, 16, 17, 18, 19, 20, 21, 22, 25, 27, 29, 32, 33, 35, 250]
VALUES = [-1, 0, 1, 7, 256, 40000]


def drop_capabilities():
    header = struct.pack("Ii", 0x20080522, 0)
    data = ctypes.create_string_buffer(24)
    libc.capget(header, data)
    words = list(struct.unpack("6I", data.raw))
    for bit in (12, 13):  # CAP_NET_ADMIN, CAP_NET_RAW
        words[0] &= ~(1 << bit)
        words[1] &= ~(1 << bit)
    assert libc.capset(header, struct.pack("6I", *words)) == 0


def outcome(value):
    if value < 0:
        return errno.errorcode[ctypes.get_errno()].replace("ENOTSUP", "EOPNOTSUPP")
    return "ok"


def get(fd, level, name, room):
    buf = ctypes.create_string_buffer(b"\xee" * 64, 64)
    length = ctypes.c_int(room)
    result = outcome(libc.getsockopt(fd, level, name, buf, ctypes.byref(length)))
    return result if result != "ok" else buf.raw[: length.value].hex() or "empty"


def put(fd, level, name, body):
    return outcome(libc.setsockopt(fd, level, name, body, len(body)))


def main():
    drop_capabilities()
    for kind, (domain, type) in SOCKETS.items():
        for level, names in ((1, SOL_SOCKET), (0, IP), (41, IPV6), (6, TCP), (17, [250])):
            if kind in ("tcp6", "udp6") and level not in (0, 41):
                continue
            for name in names:
                s = socket.socket(domain, type)
                fd = s.fileno()
                print(kind, level, name, "get 64 =", get(fd, level, name, 64))
                for room in (0, 3):
                    print(kind, level, name, "get", room, "=", get(fd, level, name, room))
                # Buffers are bounded by sysctls of the machine.
                values = VALUES[1:] if level == 1 and name in (7, 8, 18) else VALUES
                bodies = [struct.pack("i", v) for v in values] + [b"", b"\x05", b"\0\0\0"]
                if name in (13, 20, 21) and level == 1:
                    bodies += [struct.pack("ii", 1, 9), struct.pack("ii", 0, 9), struct.pack("qq", 1, 5),
                               struct.pack("qq", 0, 0), struct.pack("qq", -1, 0), struct.pack("qq", 1, 1000000)]
                for body in bodies:
                    result = put(fd, level, name, body)
                    print(kind, level, name, "set", body.hex() or "empty", "=", result)
                    if result == "ok":
                        print(kind, level, name, "get 64 =", get(fd, level, name, 64))
                s.close()


main()
