#!/usr/bin/env python3
"""Makes random calls on unix sockets of a real Linux and writes what they gave, one call per line.

Usage: record_unix.py FIRST_SEED LAST_SEED > unix.txt. The kernel's tests make the same calls and compare. All sockets are non-blocking, so
that every call ends at once. Names given by autobind are written as `auto`. All sockets are watched by an epoll instance,
edge-triggered; what it reports after a call stands behind `|`.
"""

import array
import errno
import fcntl
import os
import random
import re
import select
import socket
import struct
import sys
import tempfile
import termios

KINDS = {"st": socket.SOCK_STREAM, "dg": socket.SOCK_DGRAM, "sq": socket.SOCK_SEQPACKET}
SLOTS = 8
SIZES = [0, 1, 5, 100, 1000, 5000, 30000, 70000, 300000]
ALL = 1 | 2 | 4 | 8 | 16 | 64 | 128 | 256 | 512 | 0x2000

slots = [None] * SLOTS
counter = 0


def fnv(data):
    value = 0x811C9DC5
    for byte in data:
        value = ((value ^ byte) * 0x01000193) & 0xFFFFFFFF
    return f"{value:08x}"


def show(name):
    if name is None or name in ("", b""):
        return "none"
    raw = os.fsencode(name) if isinstance(name, str) else bytes(name)
    if re.fullmatch(rb"\0[0-9a-f]{5}", raw):
        return "auto"
    return ("@" + raw[1:].decode()) if raw[:1] == b"\0" else raw.decode()


def address(text):
    return b"\0" + text[1:].encode() if text[0] == "@" else text


def data(length):
    global counter
    counter += 1
    return bytes((counter * 7 + i) & 0xFF for i in range(length))


def control(items):
    out = []
    for level, kind, body in items:
        if kind == socket.SCM_RIGHTS:
            fds = array.array("i")
            fds.frombytes(body[: len(body) // 4 * 4])
            for fd in fds:
                os.close(fd)
            out.append(f"fds:{len(fds)}")
        elif len(body) < 12:
            out.append(f"cred:{len(body)}")
        else:
            pid, uid, gid = struct.unpack("iII", body)
            who = "me" if pid == os.getpid() else "nobody" if pid == 0 else "other"
            out.append(f"cred:{who}:{uid}:{gid}")
    return ",".join(out) or "-"


def run(op, args):
    s = slots[int(args[0])] if op != "unlink" else None
    if op == "socket":
        slots[int(args[0])] = socket.socket(socket.AF_UNIX, KINDS[args[1]] | socket.SOCK_NONBLOCK)
        return "ok"
    if op == "pair":
        a, b = socket.socketpair(socket.AF_UNIX, KINDS[args[2]] | socket.SOCK_NONBLOCK)
        slots[int(args[0])], slots[int(args[1])] = a, b
        return "ok"
    if op == "bind":
        return s.bind(address(args[1])) or "ok"
    if op == "unlink":
        return os.unlink(args[0]) or "ok"
    if op == "listen":
        return s.listen(int(args[1])) or "ok"
    if op == "connect":
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
    if op == "sendfds":
        fds = array.array("i", [null] * int(args[2]))
        anc = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, fds)]
        return s.sendmsg([data(int(args[1]))], anc, socket.MSG_NOSIGNAL)
    if op == "recv":
        flags = {"-": 0, "peek": socket.MSG_PEEK, "trunc": socket.MSG_TRUNC}[args[3]]
        got, anc, out, name = s.recvmsg(int(args[1]), int(args[2]), flags)
        flags = "".join(c for c, bit in (("T", socket.MSG_TRUNC), ("C", socket.MSG_CTRUNC)) if out & bit) or "-"
        return f"{len(got)} {fnv(got)} {show(name)} {control(anc)} {flags}"
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
    if op == "outq":
        return struct.unpack("i", fcntl.ioctl(s, termios.TIOCOUTQ, b"\0" * 4))[0]
    if op == "error":
        return s.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
    if op == "sndbuf":
        return s.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, int(args[1])) or "ok"
    if op == "passcred":
        return s.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, int(args[1])) or "ok"
    if op == "peercred":
        pid, uid, gid = struct.unpack("iII", s.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))
        who = "me" if pid == os.getpid() else "nobody" if pid == 0 else "other"
        return f"{who}:{uid}:{gid}"
    raise KeyError(op)


def edges(watched):
    """Watches new sockets and returns the edges since the last call."""
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
    seen = ",".join(f"{i}:{events:x}" for i, events in edges(watched))
    print(op, *args, "=", result, *(["|", seen] if seen else []))


def step(rng, names):
    used = [i for i in range(SLOTS) if slots[i]]
    free = [i for i in range(SLOTS) if not slots[i]]
    if len(free) > 2 and rng.random() < 0.25 or not used:
        kind = rng.choice(["st", "dg", "sq"])
        if rng.random() < 0.5:
            return call("pair", free[0], free[1], kind)
        return call("socket", free[0], kind)
    s = rng.choice(used)
    size = rng.choice(SIZES)
    choice = rng.choices(
        ["bind", "listen", "connect", "accept", "send", "sendto", "sendfds", "recv", "shutdown", "close", "look", "set"],
        [4, 3, 6, 5, 16, 4, 4, 20, 2, 3, 20, 1],
    )[0]
    if choice == "bind":
        call("bind", s, rng.choice(names))
    elif choice == "listen":
        call("listen", s, rng.choice([0, 1, 3]))
    elif choice == "connect":
        call("connect", s, rng.choice(names))
    elif choice == "accept" and free:
        call("accept", s, free[0])
    elif choice == "send":
        for _ in range(rng.choice([1, 1, 1, 15])):
            call("send", s, size)
    elif choice == "sendto":
        call("sendto", s, rng.choice(names), rng.choice([0, 10, 3000]))
    elif choice == "sendfds":
        call("sendfds", s, rng.choice([0, 1, 200]), rng.choice([1, 2, 3]))
    elif choice == "recv":
        flags = rng.choice(["-", "-", "-", "peek", "trunc"])
        call("recv", s, rng.choice(SIZES), rng.choice([0, 8, 16, 20, 24, 32, 64, 200]), flags)
    elif choice == "shutdown":
        call("shutdown", s, rng.choice([0, 1, 2]))
    elif choice == "close":
        call("close", s)
    elif choice == "look":
        call(rng.choice(["poll", "poll", "poll", "name", "peer", "inq", "outq", "error", "peercred"]), s)
    elif choice == "set":
        call(*rng.choice([("sndbuf", s, 0), ("sndbuf", s, 4000), ("passcred", s, 1), ("passcred", s, 0)]))
    if choice not in ("look", "set", "close") and slots[s]:
        call("poll", s)


def main():
    global null, counter, epoll, watched
    null = os.open("/dev/null", os.O_RDWR)
    for seed in range(int(sys.argv[1]), int(sys.argv[2])):
        with tempfile.TemporaryDirectory() as where:
            os.chdir(where)
            names = ["p0", "p1", "@a0", "@a1", "@a2"]
            print("start", seed)
            counter, epoll, watched = 0, select.epoll(), {}
            rng = random.Random(seed)
            for _ in range(150):
                step(rng, names)
                if rng.random() < 0.02:
                    path = rng.choice(["p0", "p1"])
                    if os.path.exists(path):
                        call("unlink", path)
            for i in range(SLOTS):
                if slots[i]:
                    call("close", i)
            os.chdir("/")


main()
