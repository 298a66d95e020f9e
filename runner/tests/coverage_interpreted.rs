//! Coverage of interpreted and instrumented code: what tools of services write is collected from the simulation, also where services are
//! killed and where their files are in memory only.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;
use std::sync::OnceLock;

use crate::common::{Ran, finish, have, put, run_in, stack};

/// A server that asks itself, so that it does the same natively and simulated. It ends if it is told so.
const APP: &str = r#""""A small store."""
import json
import os
import sys
import threading
import time
import urllib.error
import urllib.request
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from lib.store import Store

STORE = Store()


class Handler(BaseHTTPRequestHandler):
    """Answers requests."""

    def do_GET(self):
        """Reads a value."""
        value = STORE.get(self.path)
        if value is None:
            self.answer(404, {
                "error": "missing",
            })
        else:
            self.answer(200, {"value": value})

    def do_DELETE(self):
        STORE.delete(self.path)
        self.answer(200, {})

    def do_PUT(self):
        pairs = [
            (key, value)
            for key, value in [(self.path, 1)]
        ]
        STORE.put(*pairs[0])
        self.answer(200,
                    {})

    def answer(self, status, body):
        text = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def log_message(self, *args):  # pragma: no cover
        print(*args)


def ask(port, method, path):
    request = urllib.request.Request(
        f"http://127.0.0.1:{port}{path}",
        method=method,
    )
    try:
        with urllib.request.urlopen(request, timeout=10) as answer:
            return answer.status
    except urllib.error.HTTPError as error:
        return error.code


def never(
    argument
):
    text = """several
    lines"""
    return text + argument


server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
threading.Thread(target=server.serve_forever, daemon=True).start()
print([ask(server.server_port, method, "/a") for method in ("PUT", "GET", "PUT")], flush=True)
print(ask(server.server_port, "GET", "/b"), flush=True)
if os.fork() == 0:
    STORE.forked()
    os._exit(0)
os.wait()
while len(sys.argv) < 2:
    time.sleep(1)
server.shutdown()
"#;

const STORE: &str = r#"class Store:
    """Values by key."""

    def __init__(self):
        self.values = {}

    def get(self, key):
        return self.values.get(key)

    def put(self, key, value):
        self.values[key] = value

    def delete(self, key):
        if key in self.values:
            del self.values[key]
        else:
            raise KeyError(
                key
            )

    def forked(self):
        self.values = None
"#;

const PYTHON: &str = "services:
  web:
    command: [python3, /app/app.py]
    volumes: ['./:/app:ro']
    x-bloodhound: {rootfs: host}
";

fn config(faults: &str, property: &str, collect: &str) -> String {
    format!(
        "compose: compose.yaml\noutput: {{dir: out, coverage_format: [json, html, lcov, cobertura]}}\nsimulation: {{max_time: 30s}}\n\
         faults: {faults}\nproperties:\n  - {property}\ncoverage:\n  source: .\n  services:\n    - {collect}\n"
    )
}

/// Never violated; crashes by faults are none.
const STAYS: &str = "{name: stays, kind: safety, check: {type: no-crash}}";
const QUIET: &str = "{duration: 5s, network: {drop_rate: 0.01}}";
const CRASHES: &str = "{duration: 20s, process: {crash_probability: 0.05}}";

fn test(dir: &Path, args: &[&str]) -> Ran {
    let ran = run_in(dir, &[&["test"], args].concat());
    assert_eq!(ran.code, Some(0), "{}\n{}", ran.stdout, ran.stderr);
    ran
}

fn coverage(dir: &Path) -> serde_json::Value {
    let text = std::fs::read_to_string(dir.join("out/coverage/coverage.json")).expect("coverage.json");
    serde_json::from_str(&text).expect("JSON")
}

/// Lines of a file, and whether they were reached, as a part of coverage.json has them.
fn lines(coverage: &serde_json::Value, part: &str, file: &str) -> BTreeMap<u32, bool> {
    let lines = coverage["parts"][part]["files"][file]["lines"].as_object();
    let lines = lines.unwrap_or_else(|| panic!("{part} has no {file}: {coverage}"));
    lines.iter().map(|(line, reached)| (line.parse().expect("a number"), !reached.is_null())).collect()
}

/// Debian's Python, which a service with the host's root file system runs too.
const PYTHON3: &str = "/usr/bin/python3";

/// The same as coverage.py says of a native run: its XML has the statements, and nothing but them.
fn natively(dir: &Path) -> BTreeMap<String, BTreeMap<u32, bool>> {
    for args in
        [&["run", "--source=.", "--omit=unused.py", "app.py", "once"][..], &["xml", "-q", "-o", "native.xml"]]
    {
        let mut command = Command::new(PYTHON3);
        let ran = finish(command.current_dir(dir).args(["-m", "coverage"]).args(args), b"");
        assert_eq!(ran.code, Some(0), "{}\n{}", ran.stdout, ran.stderr);
    }
    let text = std::fs::read_to_string(dir.join("native.xml")).expect("native.xml");
    let mut files: BTreeMap<String, BTreeMap<u32, bool>> = BTreeMap::new();
    for class in text.split("<class ").skip(1) {
        let value = |tag: &str, key: &str| {
            let rest = tag.split_once(&format!("{key}=\"")).unwrap_or_else(|| panic!("{key}: {tag}")).1;
            rest.split('"').next().unwrap_or_default().to_owned()
        };
        let lines = class.split("<line ").skip(1);
        let lines =
            lines.map(|line| (value(line, "number").parse().expect("a line"), value(line, "hits") != "0"));
        files.insert(value(class, "filename"), lines.collect());
    }
    files
}

fn has_coverage_py() -> bool {
    static HAS: OnceLock<bool> = OnceLock::new();
    *HAS.get_or_init(|| {
        let scratch = crate::common::scratch("coverage-interpreted-asked");
        let mut command = Command::new(PYTHON3);
        command.current_dir(scratch).args(["-c", "import coverage; coverage.__version__"]);
        command.output().is_ok_and(|output| output.status.success())
    })
}

#[test]
fn python_is_counted_as_coverage_py_counts_it() {
    if !have(&["python3"], "coverage of Python") {
        return;
    }
    let config = config(QUIET, STAYS, "{service: web, collect: python, threshold: 60%}");
    let files = [
        ("app.py", APP),
        ("unused.py", "print(1)\n"),
        ("compose.yaml", PYTHON),
        ("bloodhound.yaml", &config),
    ];
    let dir = stack("coverage-python", &files);
    std::fs::create_dir_all(dir.join("lib")).expect("a directory");
    put(&dir, "lib/store.py", STORE);
    let ran = test(&dir, &["--seeds", "1"]);
    assert!(
        ran.stdout.contains("coverage of web: ") && ran.stdout.contains("no service loaded unused.py"),
        "{}",
        ran.stdout
    );
    let coverage = coverage(&dir);
    let (app, store) =
        (lines(&coverage, "web: python", "app.py"), lines(&coverage, "web: python", "lib/store.py"));
    let line = |text: &str| 1 + APP.lines().position(|line| line.contains(text)).expect("a line") as u32;
    // A function that never ran, and its statement over two lines, which counts once.
    let body = line("text = \"\"\"several");
    assert_eq!(
        (app.get(&body), app.get(&(body + 1)), app.get(&(body + 2))),
        (Some(&false), None, Some(&false))
    );
    assert_eq!(app.get(&line("print(*args)")), None, "excluded");
    // A child of fork(2), and threads.
    assert_eq!(store.get(&22), Some(&true), "{store:?}");
    assert_eq!(app.get(&line("self.wfile.write")), Some(&true));
    let functions =
        coverage["parts"]["web: python"]["files"]["app.py"]["functions"].as_array().expect("functions");
    let reached = |name: &str| functions.iter().find(|f| f["name"] == name).map(|f| !f["reached"].is_null());
    assert_eq!(
        (reached("never"), reached("Handler.do_GET"), reached("Handler.do_DELETE")),
        (Some(false), Some(true), Some(false))
    );
    if !has_coverage_py() {
        crate::common::leave_out("coverage of Python beside coverage.py", "there is no coverage.py here");
        return;
    }
    let native = natively(&dir);
    // What the child does, only the simulation tells; and there the service does not end.
    let but = |lines: &BTreeMap<u32, bool>, without: &[u32]| -> BTreeMap<u32, bool> {
        lines.iter().filter(|(line, _)| !without.contains(line)).map(|(a, b)| (*a, *b)).collect()
    };
    let without = ["STORE.forked()", "os._exit(0)", "time.sleep(1)", "server.shutdown()"].map(line);
    assert_eq!(but(&app, &without), but(&native["app.py"], &without));
    assert_eq!(but(&store, &[22]), but(&native["lib/store.py"], &[22]));
}

#[test]
fn coverage_py_in_a_service_says_what_it_says_natively() {
    if !have(&["python3"], "coverage.py in a service") {
        return;
    }
    if !has_coverage_py() {
        crate::common::leave_out("coverage.py in a service", "there is no coverage.py here");
        return;
    }
    let collect = "{service: web, collect: [{cobertura: /cov/report.xml}, {coverage_py: /cov/report.json}]}";
    let config = config(QUIET, STAYS, collect);
    let command = "cd /app && python3 -m coverage run --source=. app.py once; python3 -m coverage xml -q -o /cov/report.xml; \
                   python3 -m coverage json -q -o /cov/report.json; exec sleep 1000";
    let compose = format!(
        "services:\n  web:\n    command: [sh, -c, '{command}']\n    environment: {{COVERAGE_FILE: /cov/.coverage}}\n    volumes: \
         ['./:/app:ro']\n    tmpfs: [/cov]\n    x-bloodhound: {{rootfs: host}}\n"
    );
    let dir =
        stack("coverage-py", &[("app.py", APP), ("compose.yaml", &compose), ("bloodhound.yaml", &config)]);
    std::fs::create_dir_all(dir.join("lib")).expect("a directory");
    put(&dir, "lib/store.py", STORE);
    test(&dir, &["--seeds", "1"]);
    let (coverage, native) = (coverage(&dir), natively(&dir));
    for path in ["app.py", "lib/store.py"] {
        let of = |part: &str| lines(&coverage, part, path);
        assert_eq!(of("web: cobertura /cov/report.xml"), native[path], "{path}");
        // JSON has docstrings among the lines that ran.
        let json = of("web: coverage_py /cov/report.json");
        assert!(native[path].iter().all(|(line, ran)| json.get(line) == Some(ran)), "{path}: {json:?}");
    }
}

#[test]
fn an_interpreter_is_not_measured_and_the_key_is_named() {
    if !have(&["python3"], "Python without a collector") {
        return;
    }
    let config = config(QUIET, STAYS, "{service: web}");
    let dir = stack(
        "coverage-hint",
        &[
            ("app.py", "import time\ntime.sleep(1000)\n"),
            ("compose.yaml", PYTHON),
            ("bloodhound.yaml", &config),
        ],
    );
    let ran = run_in(&dir, &["test", "--seeds", "1", "--coverage-threshold", "1%"]);
    assert_eq!(ran.code, Some(4), "{}\n{}", ran.stdout, ran.stderr);
    assert!(
        ran.stdout.contains("it is an interpreter") && ran.stdout.contains("`collect: python`"),
        "{}",
        ran.stdout
    );
}

#[test]
fn crashes_lose_no_line_and_workers_change_nothing() {
    if !have(&["python3"], "coverage of Python with crashes") {
        return;
    }
    let config = config(CRASHES, STAYS, "{service: web, collect: python}");
    let dir =
        stack("coverage-crashes", &[("app.py", APP), ("compose.yaml", PYTHON), ("bloodhound.yaml", &config)]);
    std::fs::create_dir_all(dir.join("lib")).expect("a directory");
    put(&dir, "lib/store.py", STORE);
    let json = |jobs: &str| {
        let ran = test(&dir, &["--seeds", "4", "-j", jobs, "--format", "json"]);
        let line = ran.stdout.lines().last().unwrap_or_default();
        let result: serde_json::Value = serde_json::from_str(line).expect("JSON");
        assert!(result["faults"]["crash"].as_u64() > Some(0), "no crash: {result}");
        (result["coverage"].clone(), coverage(&dir))
    };
    let one = json("1");
    assert_eq!(json("2"), one);
    assert_eq!(lines(&one.1, "web: python", "lib/store.py").get(&8), Some(&true));
}

#[test]
fn a_finding_of_a_run_with_collectors_replays() {
    if !have(&["python3"], "replay with coverage of Python") {
        return;
    }
    let never = "{name: never, kind: safety, check: {type: custom, script: ./no.sh}}";
    let config = config(CRASHES, never, "{service: web, collect: python}");
    let files = [
        ("app.py", APP),
        ("compose.yaml", PYTHON),
        ("bloodhound.yaml", &config),
        ("no.sh", "#!/bin/sh\nexit 1\n"),
    ];
    let dir = stack("coverage-replay", &files);
    std::fs::create_dir_all(dir.join("lib")).expect("a directory");
    put(&dir, "lib/store.py", STORE);
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(dir.join("no.sh"), mode).expect("a mode");
    let ran = run_in(&dir, &["test", "--seeds", "1", "--bundle", "--format", "json"]);
    assert_eq!(ran.code, Some(1), "{}\n{}", ran.stdout, ran.stderr);
    let result: serde_json::Value =
        serde_json::from_str(ran.stdout.lines().last().unwrap_or_default()).expect("JSON");
    let finding = &result["findings"][0];
    let directory = finding["replay"].as_str().expect("a directory");
    let replay = run_in(&dir, &["replay", directory, "--format", "json"]);
    assert_eq!(replay.code, Some(1), "{}\n{}", replay.stdout, replay.stderr);
    let again: serde_json::Value =
        serde_json::from_str(replay.stdout.lines().last().unwrap_or_default()).expect("JSON");
    assert_eq!(again["digest"], finding["digest"], "{again}");
    assert!(!finding["digest"].is_null());
}

const NODE: &str = r#"'use strict';
const http = require('http');
const { twice } = require('./lib.js');

function never(n) {
  // A comment, and a blank line.

  return n + 1;
}

const server = http.createServer((request, response) => {
  if (request.url === '/twice') {
    response.end(String(twice(21)));
  } else {
    response.statusCode = 404;
    response.end();
  }
});

server.listen(0, '127.0.0.1', () => {
  http.get({ port: server.address().port, path: '/twice' }, (answer) => {
    answer.on('data', (data) => console.log(String(data)));
  });
});
"#;

#[test]
fn node_is_counted_by_v8() {
    if !have(&["node"], "coverage of Node") {
        return;
    }
    let config = config(CRASHES, STAYS, "{service: web, collect: [node]}");
    let compose = PYTHON.replace("[python3, /app/app.py]", "[node, /app/server.js]");
    let lib = "exports.twice = (n) => {\n  return 2 * n;\n};\n\nexports.unused = (n) => {\n  return n;\n};\n";
    let files =
        [("server.js", NODE), ("lib.js", lib), ("compose.yaml", &compose), ("bloodhound.yaml", &config)];
    let dir = stack("coverage-node", &files);
    let ran = test(&dir, &["--seeds", "2"]);
    let coverage = coverage(&dir);
    let server = lines(&coverage, "web: node", "server.js");
    let expected = [
        (1, true),
        (2, true),
        (3, true),
        (8, false),
        (11, true),
        (12, true),
        (13, true),
        (15, false),
        (16, false),
        (21, true),
        (22, true),
    ];
    for (line, reached) in expected {
        assert_eq!(server.get(&line), Some(&reached), "line {line}: {server:?}");
    }
    assert!(!server.contains_key(&4) && !server.contains_key(&6) && !server.contains_key(&7), "{server:?}");
    let lib = lines(&coverage, "web: node", "lib.js");
    assert_eq!((lib.get(&2), lib.get(&6)), (Some(&true), Some(&false)), "{lib:?}");
    // What a crash may have lost is said.
    assert!(ran.stdout.contains("node: a signal ended web"), "{}", ran.stdout);
}

/// Writes a file when it starts and one when it is asked to end.
const WRITER: &str = "#!/bin/sh
printf 'SF:/app/src/a.c\\nDA:1,1\\nDA:2,0\\nDA:3,0\\nend_of_record\\n' > /cov/start-$$.info
trap 'printf \"SF:/app/src/a.c\\nDA:2,1\\nend_of_record\\n\" > /cov/end-$$.info; exit 0' TERM
while :; do sleep 1; done
";

#[test]
fn files_of_services_are_taken_at_their_end_and_what_is_lost_is_said() {
    let config = "compose: compose.yaml
output: {dir: out, coverage_format: json}
simulation: {max_time: 10s}
faults: {duration: 5s, network: {drop_rate: 0.01}}
properties:
  - {name: stays, kind: safety, check: {type: no-crash}}
coverage:
  source: .
  services:
    - {service: ends, collect: {lcov: '/cov/*-%p.info'}, threshold: 60%}
    - {service: deaf, collect: {lcov: '/cov/start-*.info'}}
    - {service: none, collect: [{cobertura: /cov/no.xml}, {jacoco: /cov/jacoco.xml}]}
";
    let compose = "services:
  ends:
    command: [sh, /app/writer.sh]
    volumes: ['./:/app:ro']
    tmpfs: [/cov]
    x-bloodhound: {rootfs: host}
  deaf:
    command: [sh, -c, \"trap '' TERM; . /app/writer.sh\"]
    stop_grace_period: 2s
    stop_signal: SIGUSR1
    volumes: ['./:/app:ro']
    tmpfs: [/cov]
    x-bloodhound: {rootfs: host}
  none:
    command: [sh, -c, 'echo \"<report/>\" > /cov/jacoco.xml; echo wrong > /cov/no.xml; sleep 1000']
    tmpfs: [/cov]
    x-bloodhound: {rootfs: host}
";
    let deaf = compose.replace("trap '' TERM; . /app", "trap '' USR1; . /app");
    let files = [("writer.sh", WRITER), ("compose.yaml", &*deaf), ("bloodhound.yaml", config)];
    let dir = stack("coverage-files", &files);
    std::fs::create_dir_all(dir.join("src")).expect("a directory");
    put(&dir, "src/a.c", "int a;\nint b;\nint c;\n");
    let ran = test(&dir, &["--seeds", "2"]);
    let coverage = coverage(&dir);
    let part = "ends: lcov /cov/*-%p.info";
    assert_eq!(
        lines(&coverage, part, "src/a.c"),
        [(1, true), (2, true), (3, false)].into(),
        "written at the end"
    );
    assert_eq!(lines(&coverage, "deaf: lcov /cov/start-*.info", "src/a.c").get(&2), Some(&false));
    for part in [
        "lcov /cov/start-*.info: a signal ended deaf twice",
        "not measured: cobertura /cov/no.xml: its coverage was not found in the service",
        "a file of /cov/no.xml cannot be read",
    ] {
        assert!(ran.stdout.contains(part), "{part}: {}", ran.stdout);
    }
    // A threshold over what is not measured holds nothing.
    let strict = config.replace("{jacoco: /cov/jacoco.xml}]}", "{jacoco: /cov/jacoco.xml}], threshold: 1%}");
    put(&dir, "bloodhound.yaml", &strict);
    let ran = run_in(&dir, &["test", "--seeds", "1"]);
    assert_eq!(ran.code, Some(4), "{}\n{}", ran.stdout, ran.stderr);
}

#[test]
fn files_in_memory_outlive_restarts() {
    // It ends by itself again and again; each life has its own tmpfs, and writes one line more.
    let script = "#!/bin/sh
n=$(cat /data/n 2>/dev/null || echo 0)
n=$((n + 1))
echo $n > /data/n
printf \"SF:/app/src/a.c\\nDA:1,0\\nDA:2,0\\nDA:3,0\\nDA:$n,1\\nend_of_record\\n\" > /cov/cov.info
[ $n -lt 3 ] || exec sleep 1000
sleep 1
";
    let config = config(QUIET, STAYS, "{service: again, collect: {lcov: /cov/cov.info}}");
    let compose = "services:
  again:
    command: [sh, /app/life.sh]
    restart: always
    volumes: ['./:/app:ro', 'data:/data']
    tmpfs: [/cov]
    x-bloodhound: {rootfs: host}
volumes: {data: {}}
";
    let dir = stack(
        "coverage-restarts",
        &[("life.sh", script), ("compose.yaml", compose), ("bloodhound.yaml", &config)],
    );
    std::fs::create_dir_all(dir.join("src")).expect("a directory");
    put(&dir, "src/a.c", "int a;\nint b;\nint c;\n");
    test(&dir, &["--seeds", "1"]);
    let lines = lines(&coverage(&dir), "again: lcov /cov/cov.info", "src/a.c");
    assert_eq!(lines, [(1, true), (2, true), (3, true)].into());
}

/// Its child and itself are killed; the counters are there all the same.
const COUNTED: &str = "#include <signal.h>
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

static int twice(int n)
{
\treturn 2 * n;
}

static int never(int n)
{
\treturn n + 1;
}

int main(int argc, char **argv)
{
\tif (fork() == 0) {
\t\tprintf(\"%d\\n\", twice(argc));
\t\tfflush(stdout);
\t\traise(SIGKILL);
\t}
\twait(NULL);
\tif (argc > 5)
\t\tnever(argc);
\tfor (;;)
\t\tsleep(1);
}
";

#[test]
fn profiles_of_llvm_outlive_their_processes() {
    if !have(&["clang-14"], "profiles of LLVM from the simulation") {
        return;
    }
    let config = config(CRASHES, STAYS, "{service: web, collect: llvm, threshold: 50%}");
    let compose = PYTHON.replace("[python3, /app/app.py]", "[/app/counted]");
    let dir = stack(
        "coverage-llvm",
        &[("counted.c", COUNTED), ("compose.yaml", &compose), ("bloodhound.yaml", &config)],
    );
    let flags = ["-fprofile-instr-generate", "-fcoverage-mapping", "-mllvm", "-runtime-counter-relocation"];
    let mut compiler = Command::new("clang-14");
    let ran = finish(compiler.current_dir(&dir).args(flags).args(["-o", "counted", "counted.c"]), b"");
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    test(&dir, &["--seeds", "2"]);
    let lines = lines(&coverage(&dir), "web: llvm", "counted.c");
    for (line, reached) in [(8, true), (13, false), (19, true), (21, true), (25, false), (27, true)] {
        assert_eq!(lines.get(&line), Some(&reached), "line {line}: {lines:?}");
    }
}
