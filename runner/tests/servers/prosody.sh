mkdir -p /run/prosody
chown prosody /run/prosody
cd /
as="setpriv --reuid prosody --regid prosody --clear-groups"
$as prosody -F > /tmp/prosody.log 2>&1 & pid=$!
up 5222
$as prosodyctl register somebody localhost secret > /dev/null 2>&1
python3 - <<'F'
import socket
s = socket.create_connection(("127.0.0.1", 5222))
s.sendall(b"<?xml version='1.0'?><stream:stream xmlns='jabber:client' xmlns:stream='http://etherx.jabber.org/streams' to='localhost' version='1.0'>")
seen = b""
while b"</stream:features>" not in seen:
    seen += s.recv(4096)
print("starttls" if b"starttls" in seen else seen)
F
kill $pid
status $pid
