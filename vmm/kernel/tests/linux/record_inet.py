#!/usr/bin/env python3
"""As record_unix.py, for TCP and UDP over loopback. Usage: record_inet.py FIRST_SEED LAST_SEED > inet.txt

Ports are written as P0 to P3, the kernel's choices as `eph`. Sizes stay far below those of the buffers, which Linux
tunes by the memory of the machine.
"""

import errno
import fcntl
import os
import random
import select
import socket
import struct
import sys
import termios
import time

KINDS = {"st": socket.SOCK_STREAM, "dg": socket.SOCK_DGRAM}
SLOTS = 8
SIZES = [0, 1, 5, 100, 1000]
ALL = 0x23DF

slots = [None] * SLOTS


def fnv(data):
    value = 0x811C9DC5
    for byte in data:
        value = ((value ^ byte) * 0x01000193) & 0xFFFFFFFF
    return f"{value:08x}"


def show(name):
    if not name:
        return "none"
    ip, port = name
    number = port - base
    where = f"P{number}" if 0 <= number < 4 else "0" if port == 0 else "eph"
    return f"{ip}:{where}"


def address(text):
    ip, port = text.split(":")
    return ip, base + int(port[1:]) if port[0] == "P" else int(port)


def data(length):
    global counter
    counter += 1
    return bytes((counter * 7 + i) & 0xFF for i in range(length))


def run(op, args):
    s = slots[int(args[0])]
    if op == "socket":
        slots[int(args[0])] = socket.socket(socket.AF_INET, KINDS[args[1]] | socket.SOCK_NONBLOCK)
        return "ok"
    if op == "bind":
        return s.bind(address(args[1])) or "ok"
    if op == "reuse":
        return s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1) or "ok"
    if op == "linger0":
        return s.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0)) or "ok"
    if op == "listen":
        return s.listen(int(args[1])) or "ok"
    if op == "connect":
        tried.add(s)
        return s.connect(address(args[1])) or "ok"
    if op == "accept":
        fd, name = s._accept()
        slots[int(args[1])] = socket.socket(fileno=fd)
        slots[int(args[1])].setblocking(False)
        return show(name)
    if op == "send":
        return s.send(data(int(args[1])), socket.MSG_NOSIGNAL)
    if op == "sendto":
        return s.sendto(data(int(args[2])), socket.MSG_NOSIGNAL, address(args[1]))
    if op == "recv":
        flags = {"-": 0, "peek": socket.MSG_PEEK, "trunc": socket.MSG_TRUNC}[args[2]]
        size = int(args[1])
        got, _, out, name = s.recvmsg(size, 0, flags)
        cut = "T" if out & socket.MSG_TRUNC else "-"
        # With MSG_TRUNC TCP stores nothing.
        seen = "-" if args[2] == "trunc" else fnv(got)
        return f"{len(got)} {seen} {show(name)} {cut}"
    if op == "shutdown":
        return s.shutdown(int(args[1])) or "ok"
    if op == "close":
        slots[int(args[0])] = None
        return s.close() or "ok"
    if op == "poll":
        p = select.poll()
        p.register(s, ALL)
        return "%x" % (p.poll(0) or [(0, 0)])[0][1]
    if op == "name":
        return show(s.getsockname())
    if op == "peer":
        return show(s.getpeername())
    if op == "inq":
        return struct.unpack("i", fcntl.ioctl(s, termios.FIONREAD, b"\0" * 4))[0]
    if op == "error":
        return s.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
    raise KeyError(op)


def edges():
    for i, s in enumerate(slots):
        if s is None or watched.get(i) is not s:
            watched.pop(i, None)
        if s is not None and i not in watched:
            epoll.register(s, 0x201F | select.EPOLLET)
            watched[i] = s
    fds = {s.fileno(): i for i, s in watched.items()}
    return sorted((fds[fd], events) for fd, events in epoll.poll(0))


def call(*args):
    op, args = args[0], [str(a) for a in args[1:]]
    try:
        result = run(op, args)
    except OSError as e:
        result = errno.errorcode[e.errno].replace("ENOTSUP", "EOPNOTSUPP")
    seen = ",".join(f"{i}:{events:x}" for i, events in edges())
    print(op, *args, "=", result, *(["|", seen] if seen else []))


def connected(s):
    try:
        return bool(s.getpeername())
    except OSError:
        return False


def step(rng):
    used = [i for i in range(SLOTS) if slots[i]]
    free = [i for i in range(SLOTS) if not slots[i]]
    ports = ["127.0.0.1:P0", "127.0.0.1:P1", "127.0.0.1:P2"]
    if len(free) > 2 and rng.random() < 0.2 or not used:
        kind = rng.choice(["st", "st", "dg"])
        if kind == "st" and len(free) > 2 and rng.random() < 0.5:
            # A connection at once.
            port = rng.choice(ports)
            call("socket", free[0], kind)
            call("connect", free[0], port)
            call("poll", free[0])
            return
        call("socket", free[0], kind)
        if rng.random() < 0.6:
            call("reuse", free[0])
            call("bind", free[0], rng.choice(ports + ["0.0.0.0:P1", "0.0.0.0:0"]))
            if kind == "st":
                call("listen", free[0], rng.choice([0, 1, 5]))
        return
    s = rng.choice(used)
    choice = rng.choices(
        ["bind", "listen", "connect", "accept", "send", "sendto", "recv", "shutdown", "close", "look", "linger0"],
        [2, 2, 6, 12, 16, 4, 20, 3, 3, 20, 1],
    )[0]
    # Left out: what the network stack's own recordings have (failed connections used again, shutdown without one).
    if choice == "shutdown" and not connected(slots[s]):
        choice = "look"
    if choice == "connect" and slots[s].type == socket.SOCK_STREAM and slots[s] in tried:
        choice = "look"
    if choice == "bind" and slots[s] in tried:
        choice = "look"
    if choice == "bind":
        fresh = slots[s].getsockname()[1] == 0
        call("bind", s, rng.choice(ports + ["10.99.99.99:P0"] if fresh else ports))
    elif choice == "listen":
        call("listen", s, rng.choice([0, 1, 5]))
    elif choice == "connect":
        call("connect", s, rng.choice(ports))
    elif choice == "accept" and free:
        call("accept", s, free[0])
    elif choice == "send":
        for _ in range(rng.choice([1, 1, 3])):
            call("send", s, rng.choice(SIZES))
    elif choice == "sendto":
        call("sendto", s, rng.choice(ports), rng.choice([0, 10, 1000]))
    elif choice == "recv":
        call("recv", s, rng.choice([0, 1, 50, 2000]), rng.choice(["-", "-", "-", "peek", "trunc"]))
    elif choice == "shutdown":
        call("shutdown", s, rng.choice([0, 1, 2]))
    elif choice in ("close", "linger0"):
        call(choice, s)
    elif choice == "look":
        call(rng.choice(["poll", "poll", "poll", "name", "peer", "inq", "error"]), s)
    if choice not in ("look", "linger0", "close") and slots[s]:
        call("poll", s)


def main():
    global counter, epoll, watched, base, tried
    for seed in range(int(sys.argv[1]), int(sys.argv[2])):
        base = 10000 + seed * 4 % 20000
        print("start", seed)
        counter, epoll, watched, tried = 0, select.epoll(), {}, set()
        rng = random.Random(seed)
        for _ in range(120):
            step(rng)
        for i in range(SLOTS):
            if slots[i]:
                call("close", i)


main()
