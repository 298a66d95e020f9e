#!/usr/bin/env python3
"""A stream of three replicas takes messages at one node, and all three are up to date."""
import json, socket, sys
class Client:
    def __init__(self, host):
        self.s = socket.create_connection((host, 4222), timeout=5)
        self.f = self.s.makefile("rb")
        self.info = json.loads(self.f.readline().split(b" ", 1)[1])
        self.s.sendall(b'CONNECT {"verbose":false,"pedantic":false,"headers":true}\r\nSUB inbox.* 1\r\nPING\r\n')
        self.wait(b"PONG")
    def wait(self, what):
        while True:
            line = self.f.readline()
            if not line: raise OSError("closed")
            if line.startswith(what): return line
            if line.startswith(b"PING"): self.s.sendall(b"PONG\r\n")
            if line.startswith(b"-ERR"): raise OSError(line.decode())
    def ask(self, subject, body):
        self.s.sendall(b"PUB %s inbox.a %d\r\n%s\r\n" % (subject, len(body), body))
        line = self.wait(b"MSG").split()
        data = self.f.read(int(line[-1])); self.f.read(2)
        return json.loads(data)
config = {"name": "orders", "subjects": ["orders.*"], "retention": "limits", "max_consumers": -1, "max_msgs": -1, "max_bytes": -1,
          "max_age": 0, "storage": "file", "discard": "old", "num_replicas": 3, "duplicate_window": 120000000000}
c = Client("nats-1")
answer = c.ask(b"$JS.API.STREAM.CREATE.orders", json.dumps(config).encode())
if "error" in answer and "already" not in answer["error"]["description"]: sys.exit(str(answer["error"]))
last = 0
for n in range(5):
    ack = c.ask(b"orders.new", b"order %d" % n)
    if "error" in ack: sys.exit(str(ack))
    last = ack["seq"]
info = c.ask(b"$JS.API.STREAM.INFO.orders", b"")
cluster = info["cluster"]
peers = sorted([cluster["leader"]] + [r["name"] for r in cluster["replicas"] if r["current"]])
print("leader", cluster["leader"], "current", peers, "messages", info["state"]["messages"])
sys.exit(0 if peers == ["nats-1", "nats-2", "nats-3"] and info["state"]["last_seq"] == last else "behind")
