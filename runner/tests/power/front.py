"""A log of records over TCP, as that of store.c, kept by a database: front.py DATABASE [careless option ...].

It starts the server with its data in /data, waits until it answers, looks whether the records are those from 1 to the last, and then
answers on port 7000: "a" appends a record, "l" does nothing; both answer the number of the last record. What the database does not
keep as it should ends this program with 1. See runner/tests/databases.rs.
"""
import base64
import http.client
import json
import os
import re
import shutil
import socket
import struct
import subprocess
import sys
import time

TEXT = "x" * 400


def broken(what):
    print("BROKEN:", what, flush=True)
    sys.exit(1)


def made(make, *arguments):
    """Makes the first files of a database under another name, so that a loss of power leaves all of them or none."""
    if os.path.exists("/data/db"):
        return
    shutil.rmtree("/data/new", ignore_errors=True)
    make(*arguments)
    os.sync()
    os.rename("/data/new", "/data/db")
    os.sync()


def owned_directory(path, user):
    os.makedirs(path, exist_ok=True)
    shutil.chown(path, user)


def as_user(user, *command):
    return ["setpriv", "--reuid", user, "--regid", user, "--clear-groups", *command]


class Stream:
    """A connection of which exact numbers of bytes are read."""

    def __init__(self, address):
        family = socket.AF_UNIX if isinstance(address, str) else socket.AF_INET
        self.socket = socket.socket(family)
        self.socket.connect(address)
        self.file = self.socket.makefile("rb")

    def read(self, size):
        data = self.file.read(size)
        if len(data) != size:
            raise EOFError
        return data

    def line(self):
        line = self.file.readline()
        if not line.endswith(b"\n"):
            raise EOFError
        return line

    def send(self, data):
        self.socket.sendall(data)


class Postgres:
    """Its protocol, version 3: simple queries without a password."""

    def __init__(self, options):
        self.bin = "/usr/lib/postgresql/" + max(os.listdir("/usr/lib/postgresql"), key=int) + "/bin/"
        self.options = options

    def start(self):
        owned_directory("/data", "postgres")
        owned_directory("/run/postgresql", "postgres")
        initdb = as_user("postgres", self.bin + "initdb", "-N", "-k", "-A", "trust", "-D", "/data/new")
        made(lambda: subprocess.run(initdb, check=True, stdout=subprocess.DEVNULL))
        # As pg_ctlcluster does: it is empty if the power failed between its making and its fsync.
        if os.path.exists("/data/db/postmaster.pid"):
            os.remove("/data/db/postmaster.pid")
        command = as_user("postgres", self.bin + "postgres", "-D", "/data/db", "-c", "listen_addresses=")
        for option in self.options:
            command += ["-c", option]
        return command

    def connect(self):
        self.stream = Stream("/run/postgresql/.s.PGSQL.5432")
        words = b"user\0postgres\0database\0postgres\0\0"
        self.stream.send(struct.pack(">II", len(words) + 8, 196608) + words)
        self.answer()

    def answer(self):
        """The first value of each row, up to ReadyForQuery."""
        rows = []
        while True:
            kind, size = struct.unpack(">cI", self.stream.read(5))
            body = self.stream.read(size - 4)
            if kind == b"E":
                raise OSError(body)
            if kind == b"D":
                length = struct.unpack(">i", body[2:6])[0]
                rows.append(body[6 : 6 + length])
            if kind == b"Z":
                return rows

    def ask(self, query):
        query = query.encode() + b"\0"
        self.stream.send(b"Q" + struct.pack(">I", len(query) + 4) + query)
        return self.answer()

    def check(self):
        self.ask("create table if not exists log (n bigint primary key, what text)")
        self.ask("create extension if not exists amcheck")
        self.ask("select bt_index_check('log_pkey', true)")
        wrong = self.ask("select msg from verify_heapam('log')")
        if wrong:
            raise OSError(wrong)
        return [int(value) for q in ("count(*)", "coalesce(max(n), 0)") for value in self.ask(f"select {q} from log")]

    def append(self, number):
        self.ask(f"insert into log values ({number}, '{TEXT}')")


class Mariadb:
    """Its protocol, version 10, with a server that asks nobody who he is."""

    def __init__(self, options):
        self.options = options

    def make(self, command):
        """Ends a first start in order: one whose server is killed before its first checkpoint never starts again."""
        owned_directory("/data/new", "mysql")
        first = [*command, "--datadir=/data/new", "--bootstrap"]
        subprocess.run(first, check=True, input=b"create database test;\n", stderr=subprocess.DEVNULL)

    def start(self):
        owned_directory("/run/mysqld", "mysql")
        command = [
            "mariadbd", "--no-defaults", "--user=mysql", "--skip-grant-tables", "--skip-networking",
            "--innodb-log-file-size=8M",
        ]  # fmt: skip
        made(self.make, command)
        return [*command, "--datadir=/data/db", "--socket=/run/mysqld/s", *self.options]

    def packet(self):
        size = self.stream.read(4)
        return self.stream.read(int.from_bytes(size[:3], "little"))

    def send(self, number, body):
        self.stream.send(len(body).to_bytes(3, "little") + bytes([number]) + body)

    def connect(self):
        self.stream = Stream("/run/mysqld/s")
        self.packet()
        # CLIENT_LONG_PASSWORD, CLIENT_PROTOCOL_41, CLIENT_SECURE_CONNECTION.
        self.send(1, struct.pack("<IIB23x", 0x8201, 1 << 24, 33) + b"root\0\0")
        answer = self.packet()
        if answer[0] != 0:
            raise OSError(answer)

    def values(self, row):
        """The values of a row, none of them longer than 250 bytes."""
        values = []
        while row:
            size = 1 + row[0]
            values.append(row[1:size])
            row = row[size:]
        return values

    def ask(self, query):
        """The rows that answer a query."""
        self.send(0, b"\3" + query.encode())
        answer = self.packet()
        if answer[0] == 0xFF:
            raise OSError(answer)
        if answer[0] == 0:
            return []
        rows = []
        while self.packet()[0] != 0xFE:
            pass  # columns
        while True:
            row = self.packet()
            if row[0] == 0xFE and len(row) < 9:
                return rows
            if row[0] == 0xFF:
                raise OSError(row)
            rows.append(self.values(row))

    def check(self):
        self.ask("create table if not exists test.log (n bigint primary key, what text) engine innodb")
        said = self.ask("check table test.log")
        if [row[3] for row in said] != [b"OK"]:
            raise OSError(said)
        return [int(value) for q in ("count(*)", "coalesce(max(n), 0)") for [value] in self.ask(f"select {q} from test.log")]

    def append(self, number):
        self.ask(f"insert into test.log values ({number}, '{TEXT}')")


class Etcd:
    """Its gateway for JSON."""

    def __init__(self, options):
        self.options = options

    def start(self):
        made(os.mkdir, "/data/new")
        return ["etcd", "--data-dir", "/data/db", "--logger", "zap", "--log-level", "error", *self.options]

    def connect(self):
        self.http = http.client.HTTPConnection("127.0.0.1", 2379)
        self.check()

    def ask(self, what, question):
        self.http.request("POST", "/v3/kv/" + what, json.dumps(question))
        answer = self.http.getresponse()
        body = answer.read()
        if answer.status != 200:
            raise OSError(body)
        return json.loads(body)

    def check(self):
        # All keys from \0 on; the greatest of them.
        zero = base64.b64encode(b"\0").decode()
        question = {"key": zero, "range_end": zero, "limit": 1, "sort_order": "DESCEND", "sort_target": "KEY"}
        found = self.ask("range", question)
        last = base64.b64decode(found["kvs"][0]["key"]) if "kvs" in found else 0
        return int(found.get("count", 0)), int(last)

    def append(self, number):
        key = base64.b64encode(b"%09d" % number).decode()
        self.ask("put", {"key": key, "value": base64.b64encode(TEXT.encode()).decode()})


def ber(tag, *parts):
    """An element of the Basic Encoding Rules."""
    body = b"".join(part.encode() if isinstance(part, str) else part for part in parts)
    size = bytes([len(body)]) if len(body) < 128 else b"\x82" + len(body).to_bytes(2, "big")
    return bytes([tag]) + size + body


class Slapd:
    """LDAP, with the backend of LMDB."""

    CONFIG = """include /etc/ldap/schema/core.schema
modulepath /usr/lib/ldap
moduleload back_mdb
database mdb
suffix dc=x
rootdn cn=admin,dc=x
rootpw secret
directory /data/db
maxsize 33554432
"""
    DN = re.compile(rb"cn=(\d+),dc=x")

    def __init__(self, options):
        self.options = options

    def start(self):
        made(os.mkdir, "/data/new")
        with open("/tmp/slapd.conf", "w") as file:
            file.write(self.CONFIG + "".join(option + "\n" for option in self.options))
        return ["slapd", "-d", "0", "-f", "/tmp/slapd.conf", "-h", "ldapi://%2Ftmp%2Fldap"]

    def element(self):
        """The contents of the next message."""
        size = self.stream.read(2)[1]
        if size >= 128:
            size = int.from_bytes(self.stream.read(size - 128), "big")
        return self.stream.read(size)

    def ask(self, operation, allowed=(0,)):
        """The entries that were found, each as it came."""
        self.stream.send(ber(0x30, ber(2, b"\1"), operation))
        entries = []
        while True:
            body = self.element()[3:]
            if body[0] == 0x64:
                entries.append(body)
                continue
            # An enumerated number of one byte follows the tag and the size.
            result = body[body.index(b"\x0a\x01") + 2]
            if result not in allowed:
                raise OSError(body)
            return entries

    def connect(self):
        self.stream = Stream("/tmp/ldap")
        self.ask(ber(0x60, ber(2, b"\3"), ber(4, "cn=admin,dc=x"), ber(0x80, "secret")))

    def add(self, dn, attributes, allowed=(0,)):
        said = [ber(0x30, ber(4, name), ber(0x31, *(ber(4, v) for v in values))) for name, values in attributes.items()]
        self.ask(ber(0x68, ber(4, dn), ber(0x30, *said)), allowed)

    def check(self):
        # 68 is entryAlreadyExists.
        root = {"objectClass": ["dcObject", "organization"], "dc": ["x"], "o": ["x"]}
        self.add("dc=x", root, (0, 68))
        zero = ber(2, b"\0")
        one_level = ber(10, b"\1")
        entries = self.ask(
            ber(0x63, ber(4, "dc=x"), one_level, ber(10, b"\0"), zero, zero, ber(1, b"\0"), ber(0x87, "objectClass"), ber(0x30))
        )
        numbers = [int(self.DN.search(entry)[1]) for entry in entries]
        return len(set(numbers)), max(numbers, default=0)

    def append(self, number):
        self.add(f"cn={number},dc=x", {"objectClass": ["device"], "cn": [str(number)], "description": [TEXT]})


class Nats:
    """Its protocol of text lines, with a stream of JetStream."""

    def __init__(self, options):
        self.options = options

    def start(self):
        made(os.mkdir, "/data/new")
        return ["nats-server", "-js", "-sd", "/data/db", "-a", "127.0.0.1", *self.options]

    def connect(self):
        self.stream = Stream(("127.0.0.1", 4222))
        self.stream.line()
        self.stream.send(b'CONNECT {"verbose": false}\r\nSUB answers 1\r\n')
        if "error" in self.ask("$JS.API.INFO", b""):
            raise OSError("JetStream is not ready")

    def ask(self, subject, message):
        self.stream.send(b"PUB %s answers %d\r\n%s\r\n" % (subject.encode(), len(message), message))
        while True:
            line = self.stream.line()
            if line.startswith(b"PING"):
                self.stream.send(b"PONG\r\n")
            if line.startswith(b"MSG"):
                return json.loads(self.stream.read(int(line.split()[-1]) + 2))

    def check(self):
        config = {"name": "LOG", "subjects": ["log"], "storage": "file", "retention": "limits", "num_replicas": 1}
        self.ask("$JS.API.STREAM.CREATE.LOG", json.dumps(config).encode())
        state = self.ask("$JS.API.STREAM.INFO.LOG", b"")["state"]
        return state["messages"], state["last_seq"]

    def append(self, number):
        answer = self.ask("log", TEXT.encode())
        if answer.get("seq") != number:
            broken(f"record {number} became {answer}")


def started(database):
    """Starts the server and waits until it answers."""
    server = subprocess.Popen(database.start(), stdin=subprocess.DEVNULL)
    for _ in range(600):
        if server.poll() is not None:
            broken(f"the server ended with {server.returncode}")
        try:
            database.connect()
            return
        except (OSError, EOFError, http.client.HTTPException) as error:
            reason = error
        time.sleep(0.1)
    broken(f"the server does not answer: {reason}")


def serve(database, last):
    listener = socket.create_server(("", 7000))
    while True:
        peer, _ = listener.accept()
        try:
            while what := peer.recv(1):
                if what == b"a":
                    last += 1
                    keep(database, last)
                peer.sendall(struct.pack("<Q", last))
        except ConnectionError:
            pass  # the client has lost its patience
        peer.close()


def keep(database, number):
    try:
        database.append(number)
    except Exception as error:
        broken(f"record {number} was not taken: {error!r}")


def main():
    name, *options = sys.argv[1:]
    database = {"postgres": Postgres, "mariadb": Mariadb, "etcd": Etcd, "slapd": Slapd, "nats": Nats}[name](options)
    started(database)
    try:
        count, last = database.check()
    except Exception as error:
        broken(f"what is kept cannot be read: {error!r}")
    print(f"{count} records up to {last}", flush=True)
    if count != last:
        broken(f"{count} records up to {last}")
    if not os.path.exists("/data/made"):
        # What was made for the test itself, and not acknowledged to anybody.
        os.sync()
        open("/data/made", "w").close()
        os.sync()
    serve(database, last)


main()
