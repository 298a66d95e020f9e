logger -p daemon.err -t me "to standard error"
python3 - <<'F'
import os, socket, subprocess
# A daemon of the container's own takes the place of the socket.
os.unlink("/dev/log")
s = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
s.bind("/dev/log")
subprocess.run(["logger", "-t", "me", "to the daemon"], check=True)
print(s.recv(999).split(b"me: ")[1])
s.close()
s = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
try: s.connect("/dev/log")
except ConnectionRefusedError: print("refused")
F
