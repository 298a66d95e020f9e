//! Networks of a compose file as services and the workload see them: names, addresses of both families, published ports, and that
//! nothing is outside.
#![allow(clippy::disallowed_types, clippy::disallowed_methods)] // host side

mod common;

use std::path::Path;

use common::*;

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
