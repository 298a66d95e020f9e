#!/usr/bin/env python3
"""Exactly one of the three leads, the others follow, and what is written at one is read at all."""
import socket, struct, sys
NODES = ["zoo1", "zoo2", "zoo3"]
def mode(host):
    with socket.create_connection((host, 2181), timeout=5) as s:
        s.sendall(b"srvr")
        text = b"".join(iter(lambda: s.recv(4096), b"")).decode()
    return next((l.split(": ")[1] for l in text.splitlines() if l.startswith("Mode")), text.strip())
class Session:
    def __init__(self, host):
        self.s = socket.create_connection((host, 2181), timeout=10)
        self.frame(struct.pack(">iqiq", 0, 0, 10000, 0) + struct.pack(">i", 16) + bytes(16) + b"\0")
        self.read(); self.xid = 0
    def frame(self, body): self.s.sendall(struct.pack(">i", len(body)) + body)
    def read(self):
        def exactly(n):
            out = b""
            while len(out) < n:
                more = self.s.recv(n - len(out))
                if not more: raise OSError("closed")
                out += more
            return out
        return exactly(struct.unpack(">i", exactly(4))[0])
    def ask(self, kind, body):
        self.xid += 1
        self.frame(struct.pack(">ii", self.xid, kind) + body)
        answer = self.read()
        xid, zxid, err = struct.unpack(">iqi", answer[:16])
        return err, answer[16:]
def text(t): return struct.pack(">i", len(t)) + t
modes = {}
for node in NODES:
    modes[node] = mode(node)
print(modes)
if sorted(modes.values()) != ["follower", "follower", "leader"]: sys.exit("no quorum of three")
acl = struct.pack(">ii", 1, 31) + text(b"world") + text(b"anyone")
err, path = Session("zoo1").ask(1, text(b"/n-") + text(b"value") + acl + struct.pack(">i", 2))
if err: sys.exit("create: %d" % err)
path = path[4:]
for node in NODES:
    session = Session(node)
    err, _ = session.ask(9, text(path))
    if err: sys.exit("sync: %d" % err)
    err, data = session.ask(4, text(path) + b"\0")
    if err or data[4:9] != b"value": sys.exit("%s: %d %r" % (node, err, data))
print("written and read", path)
