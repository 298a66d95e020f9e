//! Networks of a compose file as services and the workload see them: names, addresses of both families, published ports, and that
//! nothing is outside.

use std::path::Path;

use crate::common::*;

/// Runs it twice: what it says must be the same.
fn twice(dir: &Path, args: &[&str]) -> Ran {
    let ran = run_in(dir, args);
    assert_eq!(ran.code, Some(0), "{ran:#?}");
    let again = run_in(dir, args);
    assert_eq!((&ran.stdout, ran.code), (&again.stdout, again.code));
    ran
}

fn said(ran: &Ran, line: &str) {
    assert!(ran.stdout.contains(line) || ran.stderr.contains(line), "{line} is missing: {ran:#?}");
}

/// An HTTP server on the port of its first argument that says its name and the address at which it was asked.
const SERVER: &str = r#"
import http.server, socket, sys
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        body = ("%s at %s" % (sys.argv[2], self.connection.getsockname()[0])).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
    def log_message(self, *args):
        pass
class Server(http.server.HTTPServer):
    address_family = socket.AF_INET6
Server(("::", int(sys.argv[1])), Handler).serve_forever()
"#;

const CLIENT: &str = r#"
import socket, sys, time, urllib.request
time.sleep(1.5)
def ask(url):
    before = time.monotonic()
    try:
        with urllib.request.urlopen(url, timeout=20) as answer:
            text = answer.read().decode()
    except OSError as e:
        reason = getattr(e, "reason", e)
        text = "%s %s" % (type(reason).__name__, getattr(reason, "errno", ""))
    return "%s, %s" % (text, "at once" if time.monotonic() - before < 1 else "late")
for url in sys.argv[1:]:
    print("[%s: %s]" % (url, ask(url)), flush=True)
print("[search %s]" % open("/etc/resolv.conf").read().split("search ")[-1].split("\n")[0], flush=True)
"#;

const COMPOSE: &str = r#"
name: shop
x-bloodhound: {rootfs: host}
x-app: &app
  working_dir: /app
  volumes: [".:/app:ro"]
services:
  web:
    <<: *app
    command: python3 server.py 8000 web
    ports: ["9000:8000"]
    networks:
      front: {aliases: [www, shop.example], ipv4_address: 10.7.0.50}
      six: {ipv6_address: "fd00:7::50"}
  app:
    <<: *app
    command: python3 server.py 8000 app
    scale: 2
    ports: ["9100-9101:8000"]
    networks: [front]
  hidden:
    <<: *app
    command: python3 server.py 8000 hidden
    networks: [back]
  client:
    <<: *app
    command:
      - python3
      - client.py
      - http://web:8000/
      - http://www:8000/
      - http://shop.example:8000/
      - http://shop-web-1:8000/
      - http://10.7.0.50:8000/
      - http://[fd00:7::50]:8000/
      - http://app-2:8000/
      - http://shop-app-1:8000/
      - http://linked:8000/
      - http://extra:8000/
      - http://hidden:8000/
      - http://api.stripe.com/
      - http://93.184.216.34/
      - http://10.7.0.77/
      - http://host.docker.internal/
    links: ["web:linked"]
    extra_hosts: ["extra=10.7.0.50", "host.docker.internal:host-gateway"]
    dns_search: [corp.example]
    networks: [front, six]
  off:
    <<: *app
    command: python3 client.py http://web:8000/ http://93.184.216.34/
    network_mode: none
networks:
  front: {ipam: {config: [{subnet: 10.7.0.0/16, gateway: 10.7.0.254}]}}
  back: {internal: true}
  six: {enable_ipv6: true, ipam: {config: [{subnet: "fd00:7::/64"}]}}
"#;

const CONFIG: &str = "compose: compose.yaml\nsimulation: {seeds: 2, start_timeout: 60s}\nproperties:\n\
    - {name: web, kind: liveness, timeout: 20s, check: {type: http, endpoint: 'http://localhost:9000/', expect: {body_contains: 'web at'}}}\n\
    - {name: second, kind: liveness, timeout: 20s, check: {type: http, endpoint: 'http://127.0.0.1:9101/', expect: {body_contains: 'app at'}}}\n\
    - {name: fine, kind: safety, check: {type: no-crash, services: [web, app]}}\nfaults: {duration: 30s}\n";

#[test]
fn names_addresses_and_ports_are_those_of_an_engine() {
    if !have(&["python3"], "networks of a compose file") {
        return;
    }
    let files = [
        ("compose.yaml", COMPOSE),
        ("server.py", SERVER),
        ("client.py", CLIENT),
        ("bloodhound.yaml", CONFIG),
    ];
    let dir = stack("compose-networks", &files);
    let ran = twice(&dir, &["run"]);
    // An alias is a name in its network only. A service of several networks is found in each of them, and getaddrinfo(3) puts
    // addresses of IPv6 first (RFC 6724, section 2.1).
    for (name, at) in [
        ("www", "::ffff:10.7.0.50"),
        ("shop.example", "::ffff:10.7.0.50"),
        ("10.7.0.50", "::ffff:10.7.0.50"),
        ("extra", "::ffff:10.7.0.50"),
        ("web", "fd00:7::50"),
        ("shop-web-1", "fd00:7::50"),
        ("linked", "fd00:7::50"),
    ] {
        said(&ran, &format!("client | [http://{name}:8000/: web at {at}, at once]"));
    }
    said(&ran, "[http://[fd00:7::50]:8000/: web at fd00:7::50, at once]");
    said(&ran, "[http://app-2:8000/: app at ::ffff:10.7.0.3, at once]");
    said(&ran, "[http://shop-app-1:8000/: app at ::ffff:10.7.0.2, at once]");
    // EAI_NONAME is -2; ENETUNREACH is 101, EHOSTUNREACH 113.
    said(&ran, "[http://hidden:8000/: gaierror -2, at once]");
    said(&ran, "[http://api.stripe.com/: gaierror -2, at once]");
    said(&ran, "[http://93.184.216.34/: OSError 101, at once]");
    said(&ran, "[http://10.7.0.77/: OSError 113, at once]");
    said(&ran, "[http://host.docker.internal/: OSError 113, at once]");
    said(&ran, "[search corp.example]");
    said(&ran, "outside: client asked for 93.184.216.34:80/tcp (1 times)");
    said(&ran, "outside: client asked for api.stripe.com");
    assert!(!ran.stdout.contains("outside: web"), "{ran:#?}");
    // A container without a network has no route either.
    said(&ran, "off | [http://93.184.216.34/: OSError 101, at once]");

    // The answer of a campaign has the speed of this machine in it.
    let json = run_in(&dir, &["test", "--format", "json"]);
    assert!(json.stdout.contains(r#""service":"client","what":"api.stripe.com""#), "{json:#?}");
}

#[test]
fn a_target_on_localhost_must_be_published() {
    let config = "compose: compose.yaml\nproperties: []\nworkload: {config: {target: 'http://localhost:8080', operations: [{type: get}]}}\n";
    let compose = "services: {a: {command: x, ports: ['80:80'], x-bloodhound: {rootfs: host}}}\n";
    let dir = stack("compose-published", &[("compose.yaml", compose), ("bloodhound.yaml", config)]);
    let ran = run_in(&dir, &["validate"]);
    assert_eq!(ran.code, Some(2), "{ran:#?}");
    said(&ran, "no service in compose.yaml publishes the port 8080");
    said(&ran, "published: `80`");
}

/// Joins a group of each family and says what comes, with the interface and the hop limit, until each of four kinds has come.
const MEMBER: &str = r#"
import socket, struct, sys
s = socket.socket(socket.AF_INET6, socket.SOCK_DGRAM)
s.bind(("::", 5000))
eth = socket.if_nametoindex("eth0")
s.setsockopt(socket.IPPROTO_IP, socket.IP_ADD_MEMBERSHIP, struct.pack("4s4si", socket.inet_aton("239.1.1.1"), b"\0" * 4, eth))
s.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_JOIN_GROUP, socket.inet_pton(socket.AF_INET6, "ff15::7") + struct.pack("i", eth))
s.setsockopt(socket.IPPROTO_IP, 12, 1)  # IP_RECVTTL
s.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_RECVHOPLIMIT, 1)
s.settimeout(8)
seen = set()
try:
    while len(seen) < 4:
        data, control, _, sender = s.recvmsg(100, 100)
        if data not in seen:
            seen.add(data)
            print("[%s from %s, hops %d]" % (data.decode(), sender[0], control[0][2][0]), flush=True)
except TimeoutError:
    print("[%d heard]" % len(seen), flush=True)
"#;

/// Sends each kind many times, as links may lose some, and in virtual time, which the first sleep lets go on until faults have begun. One that it has not joined tells that it does not hear its own.
const SENDER: &str = r#"
import socket, time
four = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
four.setsockopt(socket.SOL_SOCKET, socket.SO_BROADCAST, 1)
four.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_TTL, 3)
six = socket.socket(socket.AF_INET6, socket.SOCK_DGRAM)
time.sleep(2)
for _ in range(20):
    four.sendto(b"group", ("239.1.1.1", 5000))
    four.sendto(b"network", ("10.8.255.255", 5000))
    four.sendto(b"everybody", ("255.255.255.255", 5000))
    six.sendto(b"six", ("ff15::7", 5000))
    time.sleep(0.1)
print("[sent]", flush=True)
"#;

const GROUPS: &str = r#"
x-bloodhound: {rootfs: host}
x-app: &app
  working_dir: /app
  volumes: [".:/app:ro"]
services:
  one: {<<: *app, command: python3 member.py, networks: [front]}
  two: {<<: *app, command: python3 member.py, networks: [front]}
  other: {<<: *app, command: python3 member.py, networks: [back]}
  sender: {<<: *app, command: python3 sender.py, networks: {front: {ipv4_address: 10.8.0.9, ipv6_address: "fd00:8::9"}}}
networks:
  front: {enable_ipv6: true, ipam: {config: [{subnet: 10.8.0.0/16}, {subnet: "fd00:8::/64"}]}}
  back: {enable_ipv6: true, ipam: {config: [{subnet: 10.9.0.0/16}, {subnet: "fd00:9::/64"}]}}
"#;

#[test]
fn datagrams_to_many_reach_those_of_one_network_that_listen() {
    if !have(&["python3"], "multicast and broadcast in a network") {
        return;
    }
    let config = "compose: compose.yaml\nsimulation: {seeds: 1}\nproperties:\n\
        - {name: fine, kind: safety, check: {type: no-crash, services: [one, two]}}\n\
        faults: {duration: 15s, network: {drop_rate: 0.1}}\n";
    let files =
        [("compose.yaml", GROUPS), ("member.py", MEMBER), ("sender.py", SENDER), ("bloodhound.yaml", config)];
    let dir = stack("compose-groups", &files);
    let ran = twice(&dir, &["run"]);
    for who in ["one", "two"] {
        for line in [
            "group from ::ffff:10.8.0.9, hops 3",
            "network from ::ffff:10.8.0.9, hops 64",
            "everybody from ::ffff:10.8.0.9, hops 64",
            "six from fd00:8::9, hops 1",
        ] {
            said(&ran, &format!("{who} | [{line}]"));
        }
    }
    said(&ran, "other | [0 heard]");
    said(&ran, "sender | [sent]");
}

/// When the other nodes run, after two virtual seconds: pings a node, one that there is not and one of another network, and watches a ping of its own with a packet socket.
const PINGER: &str = r#"
import socket, subprocess, threading, time
time.sleep(2)
def run(*command):
    done = subprocess.run(command, capture_output=True, text=True)
    return done.returncode, done.stdout
code, text = run("ping", "-c", "50", "-i", "0.1", "-W", "1", "target")
received = int(text.split(" received")[0].split()[-1])
print("[ping: %d, %s]" % (code, "some" if 10 < received < 48 else text), flush=True)
code, text = run("ping", "-c", "20", "-i", "0.2", "fd00:8::9")
print("[ping of IPv6: %d, %s]" % (code, "64 bytes from fd00:8::9: icmp_seq=" in text), flush=True)
code, text = run("busybox", "ping", "-c", "20", "10.8.0.9")
print("[busybox: %d, %s]" % (code, "64 bytes from 10.8.0.9: seq=" in text), flush=True)
code, text = run("ping", "-c", "1", "10.8.0.77")
print("[nobody: %d, %s]" % (code, "Destination Host Unreachable" in text), flush=True)
code, text = run("ping", "-c", "1", "-W", "1", "10.9.0.9")
print("[elsewhere: %d, %s]" % (code, "100% packet loss" in text), flush=True)
tap = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3))
tap.bind(("eth0", 3))
run("ping", "-c", "10", "-i", "0.2", "10.8.0.9")
tap.setblocking(False)
out, back = 0, 0
try:
    while True:
        frame, address = tap.recvfrom(2000)
        if frame[12:14] == b"\x08\x00" and frame[23] == 1:
            out += address[2] == 4 and frame[34] == 8 and frame[:6] == b"\x02\x42\x0a\x08\x00\x09"
            back += address[2] == 0 and frame[34] == 0 and frame[6:12] == b"\x02\x42\x0a\x08\x00\x09"
except BlockingIOError:
    pass
print("[frames: %s, %s]" % (out, 0 < back <= 10), flush=True)
"#;

const PINGS: &str = r#"
x-bloodhound: {rootfs: host}
services:
  pinger: {working_dir: /app, volumes: [".:/app:ro"], command: python3 pinger.py, networks: [front]}
  target: {command: sleep 1000, networks: {front: {ipv4_address: 10.8.0.9, ipv6_address: "fd00:8::9"}}}
  far: {command: sleep 1000, networks: {back: {ipv4_address: 10.9.0.9}}}
networks:
  front: {enable_ipv6: true, ipam: {config: [{subnet: 10.8.0.0/16}, {subnet: "fd00:8::/64"}]}}
  back: {ipam: {config: [{subnet: 10.9.0.0/16}]}}
"#;

#[test]
fn pings_are_answered_and_lost_like_other_packets() {
    if !have(&["python3", "ping", "busybox", "sleep"], "ping(8) between services") {
        return;
    }
    let config = "compose: compose.yaml\nsimulation: {seeds: 1}\nproperties:\n\
        - {name: fine, kind: safety, check: {type: no-crash, services: [pinger]}}\n\
        faults: {duration: 60s, network: {drop_rate: 0.2}}\n";
    let dir = stack(
        "compose-pings",
        &[("compose.yaml", PINGS), ("pinger.py", PINGER), ("bloodhound.yaml", config)],
    );
    let ran = twice(&dir, &["run"]);
    for line in [
        "ping: 0, some",
        "ping of IPv6: 0, True",
        "busybox: 0, True",
        "nobody: 1, True",
        "elsewhere: 1, True",
        "frames: 10, True",
    ] {
        said(&ran, &format!("pinger | [{line}]"));
    }
}
