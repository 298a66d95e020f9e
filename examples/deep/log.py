#!/usr/bin/env python3
"""A log of keys and values with a copy: one primary, which writes each record to its disk and to the copy before it answers, and the
copy, which may answer reads while it has a lease. Correct as it is; each value of BUG plants one mistake that only several faults in
order, or one in a narrow window, bring out (README.md).

  PUT /KEY  (primary)         200: on the primary's disk, and on the copy's unless that cannot be reached and holds no lease any more
  GET /KEY  (both)            200 with the value, 404, or 503 from a copy without a lease
  GET /health                 200
"""
import os
import socket
import sys
import threading
import time

ROLE, COPY, BUG = os.environ["ROLE"], os.environ.get("COPY", ""), os.environ.get("BUG", "")
DATA = os.environ.get("DATA_DIR", "/data")
LEASE, ANSWER, RECOVERY, MERGE = 1.0, 0.4, 3.0, 1.2  # seconds


class Store:
    """Records of the form "KEY VALUE" in a file of lines; what `append` has returned for is on the disk."""

    def __init__(self, name):
        self.path = f"{DATA}/{name}"
        self.records = []
        if os.path.exists(self.path):
            with open(self.path) as lines:
                whole = lines.read().rpartition("\n")[0]
            self.records = whole.split("\n") if whole else []
            self.replace(self.records)  # without half a line at the end
        else:
            self.replace([])

    def append(self, records):
        self.file.write("".join(record + "\n" for record in records))
        self.file.flush()
        os.fsync(self.file.fileno())
        self.records.extend(records)

    def replace(self, records):
        with open(self.path + ".new", "w") as new:
            new.write("".join(record + "\n" for record in records))
            new.flush()
            os.fsync(new.fileno())
        os.rename(self.path + ".new", self.path)
        sync_directory()
        self.records = list(records)
        self.file = open(self.path, "a")


def sync_directory():
    directory = os.open(DATA, os.O_RDONLY)
    os.fsync(directory)
    os.close(directory)


def latest(records):
    return dict(record.split(" ", 1) for record in records)


class Primary:
    def __init__(self):
        self.lock = threading.Lock()
        self.log = Store("log")
        # Records of a time without the copy, which are merged into the log when the copy has them too.
        self.aside = Store("aside")
        if self.aside.records:
            self.log.append(self.aside.records)
            self.aside.replace([])
        self.values = latest(self.log.records)
        started = time.monotonic()
        self.recovering_until = started + RECOVERY if self.log.records else 0
        # A copy may have a lease of the life before this one.
        self.granted_until = started + LEASE
        self.copy, self.alone, self.unmerged, self.merge_at = None, False, [], None

    def start(self):
        threading.Thread(target=self.keep_copy, daemon=True).start()

    def get(self, key):
        with self.lock:
            self.wait_for_lease()
            return self.values.get(key)

    def put(self, key, value):
        record = f"{key} {value}"
        with self.lock:
            self.merge_if_due()
            if self.alone:
                self.aside.append([record])
                self.unmerged.append(record)
            else:
                self.log.append([record])
            if not self.tell_copy(f"record {record}"):
                self.wait_for_lease()
            self.values[key] = value

    def wait_for_lease(self):
        """Nothing is answered that a copy out of reach may not know, or no longer know, while it may still answer reads."""
        if self.copy is None and (left := self.granted_until - time.monotonic()) > 0:
            time.sleep(left)

    def tell_copy(self, line):
        """Whether the copy has confirmed it. A copy that does not is given up until it connects anew."""
        if self.copy is None:
            return False
        stream, lines = self.copy
        try:
            stream.sendall(line.encode() + b"\n")
            while (answer := next(lines)) != "done":
                self.grant(answer)
            return True
        except (OSError, StopIteration):
            self.copy = None
            stream.close()
            if self.recovering_until > time.monotonic():
                # Recovery compares the log with the copy: until the copy is back, records go aside.
                self.alone = True
            return False

    def grant(self, asked):
        """The lease counts from when the copy asked, which was before now."""
        self.granted_until = max(self.granted_until, time.monotonic() + LEASE)
        self.copy[0].sendall(f"grant {asked.split()[1]}\n".encode())

    def merge_if_due(self):
        if self.merge_at is not None and time.monotonic() >= self.merge_at:
            self.log.append(self.unmerged)
            self.aside.replace([])
            self.unmerged, self.merge_at, self.alone = [], None, False

    def keep_copy(self):
        while True:
            time.sleep(0.1)
            with self.lock:
                self.merge_if_due()
                if self.copy is not None:
                    self.tell_copy("beat")
                    continue
            try:
                stream = socket.create_connection((COPY, 7000), timeout=ANSWER)
            except OSError:
                continue
            with self.lock:
                lines = lines_of(stream)
                self.copy = (stream, lines)
                records = self.log.records + self.unmerged
                if not self.tell_copy(f"sync {len(records)}"):
                    continue
                if not self.tell_copy("\n".join(records + ["end"])):
                    continue
                if self.alone and self.merge_at is None:
                    print(f"the copy has the {len(self.unmerged)} records that were set aside", flush=True)
                    self.merge_at = time.monotonic() + MERGE
                    if BUG == "merges-late":
                        # Planted: the copy has them, so they are taken for safe. They are in the log only when they are merged.
                        self.aside.replace([])


class Copy:
    def __init__(self):
        self.lock = threading.Lock()
        self.log = Store("log")
        self.values = latest(self.log.records)
        self.lease_until, self.link = 0, None

    def start(self):
        threading.Thread(target=self.follow, daemon=True).start()

    def get(self, key):
        with self.lock:
            if self.clock() >= self.lease_until:
                raise Unavailable
            return self.values.get(key)

    def put(self, _key, _value):
        raise NotHere

    def clock(self):
        # Planted: the wall clock may be set back, and the lease is longer by as much.
        return time.time() if BUG == "wall-lease" else time.monotonic()

    def follow(self):
        listener = socket.create_server(("0.0.0.0", 7000))
        while True:
            stream, _ = listener.accept()
            if self.link is not None:
                close(self.link)
            self.link = stream
            threading.Thread(target=self.serve, args=(stream,), daemon=True).start()

    def serve(self, stream):
        stream.settimeout(None)
        try:
            lines = lines_of(stream)
            for line in lines:
                word, _, rest = line.partition(" ")
                with self.lock:
                    if self.link is not stream:
                        return
                    if word == "sync":
                        self.sync(stream, lines, int(rest))
                    elif word == "record":
                        self.record(rest)
                    elif word == "grant":
                        self.lease_until = max(self.lease_until, float(rest) + LEASE)
                        continue
                    if word == "beat" and self.lease_until - self.clock() < LEASE / 2:
                        stream.sendall(f"want {self.clock()}\n".encode())
                stream.sendall(b"done\n")
        except OSError:
            pass

    def sync(self, stream, lines, count):
        """Makes the log the primary's, which has `count` records."""
        stream.sendall(b"done\n")
        self.lease_until = 0
        records = []
        while (line := next(lines, None)) != "end":
            if line is None:
                raise OSError("the primary is gone")
            records.append(line)
        assert len(records) == count
        print(f"{len(records)} records of the primary, {len(self.log.records)} here: the rest are records to follow", flush=True)
        if BUG == "counts-early":
            # Planted: what is said to be here is said before it is, and the next sync believes it.
            have = self.counted()
            self.count(count)
            time.sleep(0.1)
            self.log.append(records[have:])
        elif self.log.records == records[: len(self.log.records)]:
            self.log.append(records[len(self.log.records) :])
        else:
            self.log.replace(records)
        self.values = latest(self.log.records)

    def record(self, record):
        self.log.append([record])
        key, value = record.split(" ", 1)
        self.values[key] = value
        if BUG == "counts-early":
            self.count(self.counted() + 1)

    def counted(self):
        try:
            with open(f"{DATA}/count") as count:
                return int(count.read())
        except FileNotFoundError:
            return 0

    def count(self, count):
        with open(f"{DATA}/count.new", "w") as new:
            new.write(str(count))
            new.flush()
            os.fsync(new.fileno())
        os.rename(f"{DATA}/count.new", f"{DATA}/count")
        sync_directory()


class Unavailable(Exception):
    pass


class NotHere(Exception):
    pass


def close(stream):
    try:
        stream.shutdown(socket.SHUT_RDWR)
    except OSError:
        pass


def lines_of(stream):
    """Lines without their ends, until the stream ends."""
    rest = b""
    while block := stream.recv(65536):
        *lines, rest = (rest + block).split(b"\n")
        yield from (line.decode() for line in lines)


def answer(service, method, path, body):
    key = path[1:]
    if path == "/health":
        return 200, "well"
    try:
        if method == "PUT":
            service.put(key, body)
            return 200, ""
        value = service.get(key)
        return (404, "") if value is None else (200, value)
    except Unavailable:
        return 503, ""
    except NotHere:
        return 405, ""


def serve_client(service, stream):
    stream.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    try:
        received = b""
        while True:
            while b"\r\n\r\n" not in received:
                block = stream.recv(65536)
                if not block:
                    return
                received += block
            head, _, received = received.partition(b"\r\n\r\n")
            first, *fields = head.decode().split("\r\n")
            length = next((int(field.split(":")[1]) for field in fields if field.lower().startswith("content-length:")), 0)
            while len(received) < length:
                block = stream.recv(65536)
                if not block:
                    return
                received += block
            method, path, _ = first.split(" ")
            status, text = answer(service, method, path, received[:length].decode())
            received = received[length:]
            stream.sendall(f"HTTP/1.1 {status} -\r\nContent-Length: {len(text)}\r\n\r\n{text}".encode())
    except OSError:
        pass
    finally:
        stream.close()


def main():
    service = Primary() if ROLE == "primary" else Copy()
    listener = socket.create_server(("0.0.0.0", 8080), backlog=64)
    service.start()
    while True:
        stream, _ = listener.accept()
        threading.Thread(target=serve_client, args=(service, stream), daemon=True).start()


main()
