# As the unit runs it: the script of the package asks su(1) for the user, which reads /etc/shadow.
export HOME=/var/lib/rabbitmq RABBITMQ_LOG_BASE=/var/log/rabbitmq
mkdir -p /var/log/rabbitmq /var/lib/rabbitmq
chown rabbitmq: /var/log/rabbitmq /var/lib/rabbitmq
as() { setpriv --reuid rabbitmq --regid rabbitmq --clear-groups "$@"; }
as /usr/lib/rabbitmq/bin/rabbitmq-server > /tmp/rabbitmq.out 2>&1 & pid=$!
up 5672
as /usr/lib/rabbitmq/bin/rabbitmqctl -q add_vhost other
as /usr/lib/rabbitmq/bin/rabbitmqctl -q --no-table-headers list_vhosts | sort
python3 - <<'P'
# Publishes to a queue and gets it back, in AMQP 0-9-1.
import socket, struct
s = socket.create_connection(("127.0.0.1", 5672))
def short(t): return struct.pack("B", len(t)) + t
def send(channel, cls, method, body=b"", kind=1):
    payload = struct.pack(">HH", cls, method) + body
    s.sendall(struct.pack(">BHI", kind, channel, len(payload)) + payload + b"\xce")
def read(n):
    out = b""
    while len(out) < n: out += s.recv(n - len(out))
    return out
def frame():
    kind, channel, size = struct.unpack(">BHI", read(7))
    payload = read(size); read(1)
    return kind, payload
def method(): return struct.unpack(">HH", frame()[1][:4])
s.sendall(b"AMQP\0\0\x09\x01")
print(method())
auth = b"\0guest\0guest"
send(0, 10, 11, struct.pack(">I", 0) + short(b"PLAIN") + struct.pack(">I", len(auth)) + auth + short(b"en_US"))
print(method())
send(0, 10, 31, struct.pack(">HIH", 2047, 131072, 0))
send(0, 10, 40, short(b"/") + b"\0\0")
print(method())
send(1, 20, 10, short(b"")); print(method())
send(1, 50, 10, b"\0\0" + short(b"q") + b"\0" + struct.pack(">I", 0)); print(method())
send(1, 60, 40, b"\0\0" + short(b"") + short(b"q") + b"\0")
body = b"a message"
header = struct.pack(">HHQH", 60, 0, len(body), 0)
s.sendall(struct.pack(">BHI", 2, 1, len(header)) + header + b"\xce" + struct.pack(">BHI", 3, 1, len(body)) + body + b"\xce")
send(1, 60, 70, b"\0\0" + short(b"q") + b"\1")
print(method()); frame(); print(frame()[1].decode())
P
as /usr/lib/rabbitmq/bin/rabbitmqctl -q shutdown > /dev/null
status $pid
