#!/usr/bin/env python3
"""A quorum queue with three members takes a message at one node, confirms it, and gives it at another."""
import socket, struct, sys
def short(t): return struct.pack("B", len(t)) + t
class Client:
    def __init__(self, host):
        self.s = socket.create_connection((host, 5672), timeout=20)
        self.s.sendall(b"AMQP\0\0\x09\x01")
        self.expect(10, 10)
        auth = b"\0guest\0guest"
        self.send(0, 10, 11, struct.pack(">I", 0) + short(b"PLAIN") + struct.pack(">I", len(auth)) + auth + short(b"en_US"))
        self.expect(10, 30)
        self.send(0, 10, 31, struct.pack(">HIH", 2047, 131072, 0))
        self.send(0, 10, 40, short(b"/") + b"\0\0")
        self.expect(10, 41)
        self.send(1, 20, 10, short(b"")); self.expect(20, 11)
    def send(self, channel, cls, method, body=b""):
        payload = struct.pack(">HH", cls, method) + body
        self.s.sendall(struct.pack(">BHI", 1, channel, len(payload)) + payload + b"\xce")
    def read(self, n):
        out = b""
        while len(out) < n:
            more = self.s.recv(n - len(out))
            if not more: raise OSError("closed")
            out += more
        return out
    def frame(self):
        while True:
            kind, channel, size = struct.unpack(">BHI", self.read(7))
            payload = self.read(size); self.read(1)
            if kind != 8: return payload
    def expect(self, *want):
        payload = self.frame()
        got = struct.unpack(">HH", payload[:4])
        if got not in (want, want[:2]): sys.exit("%r instead of %r: %r" % (got, want, payload))
        return payload
    def publish(self, queue, body):
        self.send(1, 60, 40, b"\0\0" + short(b"") + short(queue) + b"\0")
        header = struct.pack(">HHQHB", 60, 0, len(body), 0x1000, 2)
        self.s.sendall(struct.pack(">BHI", 2, 1, len(header)) + header + b"\xce" + struct.pack(">BHI", 3, 1, len(body)) + body + b"\xce")
table = short(b"x-queue-type") + b"S" + struct.pack(">I", 6) + b"quorum"
one = Client("r1")
one.send(1, 50, 10, b"\0\0" + short(b"orders") + b"\2" + struct.pack(">I", len(table)) + table); one.expect(50, 11)
one.send(1, 85, 10, b"\0"); one.expect(85, 11)
one.publish(b"orders", b"an order"); one.expect(60, 80)
two = Client("r3")
two.send(1, 60, 70, b"\0\0" + short(b"orders") + b"\1"); two.expect(60, 71)
two.frame()
print(two.frame().decode())
