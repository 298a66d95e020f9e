#!/usr/bin/env python3
"""Runs the socket scripts of this folder on the machine's own Linux and writes down what it answered.

Usage: record.py [--check] script.txt ...

Each line of a script is one call; what follows "->" is the recorded result. `tests/linux.rs` plays the same
scripts on the simulated stack and compares. All sockets are non-blocking. Addresses are `ip:port`, with `@name` for
the port of that socket; a name may also stand for a peer's port in results. `#` starts a comment; an empty line
closes all sockets.
"""
import errno
import select
import socket
import struct
import sys
import time

OPTIONS = {
    "reuseaddr": (socket.SOL_SOCKET, socket.SO_REUSEADDR),
    "reuseport": (socket.SOL_SOCKET, socket.SO_REUSEPORT),
    "keepalive": (socket.SOL_SOCKET, socket.SO_KEEPALIVE),
    "sndbuf": (socket.SOL_SOCKET, socket.SO_SNDBUF),
    "rcvbuf": (socket.SOL_SOCKET, socket.SO_RCVBUF),
    "rcvlowat": (socket.SOL_SOCKET, socket.SO_RCVLOWAT),
    "nodelay": (socket.IPPROTO_TCP, socket.TCP_NODELAY),
    "cork": (socket.IPPROTO_TCP, socket.TCP_CORK),
    "quickack": (socket.IPPROTO_TCP, socket.TCP_QUICKACK),
    "keepidle": (socket.IPPROTO_TCP, socket.TCP_KEEPIDLE),
    "keepintvl": (socket.IPPROTO_TCP, socket.TCP_KEEPINTVL),
    "keepcnt": (socket.IPPROTO_TCP, socket.TCP_KEEPCNT),
    "usertimeout": (socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT),
    "v6only": (socket.IPPROTO_IPV6, socket.IPV6_V6ONLY),
}
FLAGS = [("IN", 1), ("OUT", 4), ("ERR", 8), ("HUP", 16), ("RDHUP", 0x2000)]
STATES = ["", "ESTABLISHED", "SYN_SENT", "SYN_RECV", "FIN_WAIT1", "FIN_WAIT2", "TIME_WAIT", "CLOSE", "CLOSE_WAIT",
          "LAST_ACK", "LISTEN", "CLOSING"]


class Script:
    def __init__(self):
        self.sockets = {}
        self.ports = {}
        self.epolls = {}

    def end(self):
        for sock in self.sockets.values():
            sock.close()

    def port_of(self, name):
        if name not in self.ports:
            self.ports[name] = self.sockets[name].getsockname()[1]
        return self.ports[name]

    def address(self, text):
        ip, port = text.rsplit(":", 1)
        port = self.port_of(port[1:]) if port.startswith("@") else int(port)
        return (ip.strip("[]"), port)

    def show(self, address):
        ip, port = address[0], address[1]
        names = [name for name in self.sockets if self.ports.get(name) == port and port]
        shown = "@" + names[0] if names else "0" if port == 0 else "*"
        return f"[{ip}]:{shown}" if ":" in ip else f"{ip}:{shown}"

    def flags(self, mask):
        return "|".join(text for text, bit in FLAGS if mask & bit) or "none"

    def add(self, name, sock):
        sock.setblocking(False)
        self.sockets[name] = sock
        return "ok"

    def learn(self, name):
        port = self.sockets[name].getsockname()[1]
        if port:
            self.ports[name] = port
        return "ok"

    def run(self, op, name, args):
        sock = self.sockets.get(name)
        if op in ("tcp4", "tcp6", "udp4", "udp6"):
            family = socket.AF_INET6 if op.endswith("6") else socket.AF_INET
            kind = socket.SOCK_DGRAM if op.startswith("udp") else socket.SOCK_STREAM
            return self.add(name, socket.socket(family, kind))
        if op == "wait":
            time.sleep(int(name) / 1000)
            return "ok"
        if op == "accept":
            child, peer = sock.accept()
            self.add(args[0], child)
            return self.show(peer)
        if op == "poll":
            poll = select.poll()
            poll.register(sock, 1 | 4 | 0x2000)
            mask = dict(poll.poll(0)).get(sock.fileno(), 0)
            return self.flags(mask)
        if op == "watch":
            epoll = self.epolls[name] = select.epoll()
            epoll.register(sock, select.EPOLLIN | select.EPOLLOUT | select.EPOLLRDHUP | select.EPOLLET)
            return "ok"
        if op == "edge":
            return self.flags(dict(self.epolls[name].poll(0)).get(sock.fileno(), 0))
        if op == "close":
            sock.close()
            return "ok"
        return self.call(op, name, sock, args)

    def call(self, op, name, sock, args):
        if op == "bind":
            sock.bind(self.address(args[0]))
            return self.learn(name)
        if op == "listen":
            sock.listen(int(args[0]))
            return self.learn(name)
        if op == "connect":
            try:
                sock.connect(self.address(args[0]))
            finally:
                self.learn(name)
            return "ok"
        if op == "disconnect":
            import ctypes
            libc = ctypes.CDLL(None, use_errno=True)
            if libc.connect(sock.fileno(), struct.pack("H14x", socket.AF_UNSPEC), 16) < 0:
                raise OSError(ctypes.get_errno(), "")
            return "ok"
        if op == "send":
            return str(sock.send(b"x" * int(args[0]), socket.MSG_NOSIGNAL))
        if op == "sendto":
            count = sock.sendto(b"x" * int(args[0]), socket.MSG_NOSIGNAL, self.address(args[1]))
            self.learn(name)
            return str(count)
        if op in ("recv", "peek"):
            return str(len(sock.recv(int(args[0]), socket.MSG_PEEK if op == "peek" else 0)))
        if op == "recvfrom":
            data, peer = sock.recvfrom(65536)
            return f"{len(data)} {self.show(peer)}"
        if op == "shutdown":
            sock.shutdown({"rd": 0, "wr": 1, "rdwr": 2}[args[0]])
            return "ok"
        if op == "error":
            code = sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
            return errno.errorcode[code] if code else "none"
        if op == "state":
            return STATES[sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 1)[0]]
        if op == "sockname":
            return self.show(sock.getsockname())
        if op == "peername":
            return self.show(sock.getpeername())
        if op == "set" and args[0] == "linger":
            on = args[1] != "off"
            value = struct.pack("ii", on, int(args[1]) if on else 0)
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, value)
            return "ok"
        if op == "set":
            sock.setsockopt(*OPTIONS[args[0]], int(args[1]))
            return "ok"
        if op == "get":
            return str(sock.getsockopt(*OPTIONS[args[0]]))
        raise SystemExit(f"unknown call {op}")

    def result(self, line):
        op, name, *args = line.split()
        try:
            return self.run(op, name, args)
        except OSError as error:
            # Two names of one number.
            return errno.errorcode[error.errno].replace("ENOTSUP", "EOPNOTSUPP")


def record(path, check):
    out, differs = [], False
    script = Script()
    for line in open(path).read().splitlines():
        call = line.split("->")[0].strip()
        if not call or call.startswith("#"):
            if not call:
                script.end()
                script = Script()
            out.append(line)
            continue
        recorded = f"{call} -> {script.result(call)}"
        if check and recorded != line:
            print(f"{path}: {line!r}, but now {recorded!r}")
            differs = True
        out.append(recorded)
    if not check:
        open(path, "w").write("\n".join(out) + "\n")
    return differs


if __name__ == "__main__":
    check = "--check" in sys.argv
    paths = [arg for arg in sys.argv[1:] if arg != "--check"]
    sys.exit(any([record(path, check) for path in paths]))
