//! Unmodified programs of the distribution run under `bloodhound exec` as they do natively: same output, same exit code, and
//! nothing on the host changes. What is not installed is left out, with a line that says so; CI has everything.

use std::collections::BTreeMap;
use std::net::TcpListener;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Mutex;

use crate::common::{Ran, exec, finish, have, in_parallel, repository};

/// A bash script, and the programs that must be installed for it.
struct Case {
    name: &'static str,
    needs: &'static [&'static str],
    script: &'static str,
}

const PATH: &str = "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
/// Waits for a server on $PORT.
const UP: &str = "up() { for i in $(seq 200); do curl -s -o /dev/null http://127.0.0.1:$PORT/ && return; sleep 0.05; done; echo never up; };";

const SHELL: &[Case] = &[
    Case {
        name: "files",
        needs: &[],
        script: "mkdir -p a/b && echo one > a/x && cp -r a c && mv c e && find . | sort && rm -r e && ls
            ln a/x h && ln -s a/x s && readlink s && readlink -f s | sed 's|.*/||' && stat -c '%h %s %F %a' h s a/x
            touch -d @1000 t && stat -c %Y t && truncate -s 10 t && wc -c t && chmod 640 t && stat -c %a t
            mkfifo p && (echo through > p &) ; cat p; rmdir a || echo not empty; test -e nothing || echo none",
    },
    Case {
        name: "text",
        needs: &["awk"],
        script: "sort -n big | tail -n 2; sort -r big | head -n 2; wc big; cut -c1-2 big | sort -u | wc -l
            grep -c 7 big; sed -n '5s/^/x/p' big; tr 0-9 a-j < big | head -n 1; awk '{s+=$1} END {print s}' big
            seq 3 | paste - big | head -n 3; tac big | head -n 1; nl big | tail -n 1; uniq -c f; fold -w1 f | head -n 3
            od -c f; base64 f; diff f d/x; cmp f d/x; comm f d/x; split -n 2 big; ls x*; expr 3 + 4; factor 12345
            printf '%s %d\\n' a 3; date -u -d @0; env -i A=1 env; find . -type f | sort | xargs wc -c | tail -n 1",
    },
    Case {
        name: "sums and archives",
        needs: &["gzip", "tar"],
        script: "sha256sum big; md5sum big; cksum f; gzip -c big | gunzip | sha256sum; tar cf - d f | tar tf -
            tar czf t.tgz d && mkdir out && tar xzf t.tgz -C out 2>/dev/null && cat out/d/x
            dd if=big of=o bs=512 count=10 2>/dev/null; wc -c o; tee o2 < f | cat; cat o2",
    },
    Case {
        name: "pipes",
        needs: &[],
        script: "yes 'some text' | head -n 100000 | gzip -1 | zcat | wc; seq 1000 | while read n; do :; done; echo $?
            set -o pipefail; false | true || echo failed; (exit 3) | cat; echo ${PIPESTATUS[@]}; dd if=/dev/zero bs=64k count=64 2>/dev/null | wc -c",
    },
    Case {
        name: "time and signals",
        needs: &[],
        script: "sleep 0.2; timeout 0.2 sleep 50; echo $?; timeout -s INT 0.1 sleep 3; echo $?
            sleep 100 & kill $!; wait $!; echo $?; sleep 100 & kill -STOP $!; kill -KILL $!; wait $!; echo $?
            trap 'echo got it' USR1; kill -USR1 $$; trap 'echo the end' EXIT; kill -0 $$ && echo alive; (kill -TERM $BASHPID); echo $?",
    },
    Case {
        name: "bash",
        needs: &[],
        script: "cat <<< here; cat <<END
a $((3 * 4))
END
            diff <(seq 3) <(seq 4); (for i in 1 2 3; do (sleep 0.0$i; echo $i) & done; wait) | sort
            a=(x y z); echo ${#a[@]} ${a[1]}; declare -A h=([k]=v); echo ${h[k]}; [[ abc =~ b(.) ]] && echo ${BASH_REMATCH[1]}
            coproc cat; echo ping >&${COPROC[1]}; read -u ${COPROC[0]} line; echo $line; kill $COPROC_PID; wait $COPROC_PID; echo $?
            read -t 0.1 x < p; exec 3> three; echo z >&3; exec 3>&-; cat three; f() { local v=$1; return $v; }; f 7; echo $?
            echo $(echo sub $(echo sub)); set -- a 'b c'; printf '[%s]' \"$@\"; echo; umask 077; touch u; stat -c %a u",
    },
    Case {
        name: "terminals",
        needs: &["script", "python3"],
        script: "script -qc 'tty | sed s,[0-9].*,N,; stty -a; stty -echo rows 5 cols 7; stty size; test -t 1 && echo yes' /dev/null < /dev/null
            script -qec 'exit 3' /dev/null < /dev/null; echo $?
            python3 -c '
import os, pty, re
pid, fd = pty.fork()
if pid == 0:
    os.environ.update(PS1=\"$ \", TERM=\"dumb\")
    os.execvp(\"bash\", [\"bash\", \"--norc\", \"--noprofile\", \"--noediting\", \"-i\"])
def type(keys, *expected):
    os.write(fd, keys)
    for text in expected:
        seen = b\"\"
        while not re.search(text, seen):
            seen += os.read(fd, 1)
        print(text)
    return seen
def until(what):
    while True:
        try:
            if what(): return
        except OSError: pass
        os.sched_yield()
def state(pid):
    return open(\"/proc/%d/stat\" % pid).read().split()[1:3]
def runs():
    until(lambda: state(os.tcgetpgrp(fd)) == [\"(sleep)\", \"S\"])
type(b\"\", rb\"[$] \")
type(b\"sleep 100\\n\", rb\"sleep 100\\r\\n\")
runs()
type(b\"\\x1a\", rb\"Stopped\", rb\"[$] \")
type(b\"bg\\n\", rb\"sleep 100 &\", rb\"[$] \")
type(b\"fg\\n\", rb\"sleep 100\\r\\n\")
runs()
type(b\"\\x03\", rb\"[$] \")
cat = int(type(b\"cat &\\n\", rb\"\\[1\\] \\d+\\r\\n\").split()[-1])
until(lambda: state(cat)[1] == \"T\")
type(b\"\\n\", rb\"Stopped\")
type(b\"exit 4\\nexit 4\\n\", rb\"exit\")
print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
'",
    },
    Case {
        name: "dash",
        needs: &["dash"],
        script: "dash -c 'i=0; while [ $i -lt 50 ]; do /bin/true; i=$((i+1)); done; echo $i; sleep 0.1 & wait; trap \"echo bye\" EXIT; x=$(cat f | wc -l); echo $x; cd d; pwd | sed s,.*/,,; exec cat x'",
    },
    Case {
        name: "busybox",
        needs: &["busybox"],
        script: "busybox sh -c 'echo hi | busybox sed s/h/j/; busybox ls d; busybox awk \"BEGIN{print 3}\"; busybox find . -name x; busybox tar cf - d | busybox tar tf -; busybox sha256sum f; busybox seq 3 | busybox sort -r; busybox ps > /dev/null; busybox free > /dev/null'
            busybox httpd -p 127.0.0.1:$PORT -h d; busybox wget -q -O- http://127.0.0.1:$PORT/x; busybox pkill -f $PORT; echo $?",
    },
    Case {
        name: "perl",
        needs: &["perl"],
        script: r#"perl -e 'print join(",", map { $_ * 2 } 1..5), "\n"; my $p = fork(); if (!$p) { exit 3 } waitpid($p, 0); print $? >> 8, "\n"; open(F, "-|", "echo hi"); print <F>; printf "%.3f\n", sin(1); $SIG{ALRM} = sub { print "alarm\n" }; alarm 1; sleep 5; local $| = 1; print scalar(localtime(0)), "\n"'
            perl -MIO::Socket::INET -e '$s = IO::Socket::INET->new(Listen => 5, LocalAddr => "127.0.0.1", LocalPort => 0); if (fork() == 0) { $c = $s->accept; print $c "hello\n"; close $c; exit } $k = IO::Socket::INET->new("127.0.0.1:" . $s->sockport); print scalar <$k>; wait'"#,
    },
    Case {
        name: "openssl",
        needs: &["openssl"],
        script: "openssl version; openssl dgst -sha256 big; openssl enc -aes-128-cbc -K 00 -iv 00 -in f -a 2>/dev/null; openssl genrsa 1024 2>/dev/null | head -n 1",
    },
    Case {
        name: "git",
        needs: &["git"],
        script: "export GIT_AUTHOR_DATE='2020-01-01T00:00:00Z' GIT_COMMITTER_DATE='2020-01-01T00:00:00Z' GIT_CONFIG_NOSYSTEM=1
            git init -q -b main r && cd r && git config user.email a@b.c && git config user.name n && cp ../f . && git add f && git commit -q -m first
            git log --format='%H %s' && git status --short && echo x >> f && git diff --stat && git commit -q -a -m second
            git checkout -q -b other HEAD~1 && git gc -q && git fsck && git log --oneline --all | wc -l && git clone -q . ../copy && ls ../copy",
    },
    Case {
        name: "gcc",
        needs: &["gcc"],
        script: "echo 'int puts(const char *); int main(void) { puts(\"hello\"); return 4; }' > h.c && gcc -O1 h.c -o h && ./h; echo $?",
    },
    Case {
        name: "sqlite3",
        needs: &["sqlite3"],
        script: "sqlite3 t.db 'create table a(x); insert into a values (1), (2); pragma journal_mode=wal; update a set x = x + 1; select sum(x) from a;'",
    },
    Case {
        name: "redis",
        needs: &["redis-server", "redis-cli"],
        script: "redis-server --port $PORT --bind 127.0.0.1 --save '' > /dev/null & c() { redis-cli -p $PORT \"$@\"; }
            for i in $(seq 200); do c ping 2>/dev/null | grep -q PONG && break; sleep 0.05; done
            c set a 1; c incr a; c lpush l x y z; c lrange l 0 -1; c expire a 1; sleep 1.5; c get a; c shutdown nosave; wait; echo $?",
    },
    Case {
        name: "nginx",
        needs: &["nginx", "curl"],
        // `user` is for root only: nobody else's processes may look into the directory.
        script: "mkdir t; printf 'daemon off; user root root; worker_processes 2; pid t/pid; events {} http { access_log off; client_body_temp_path t/a; proxy_temp_path t/b;
            fastcgi_temp_path t/c; uwsgi_temp_path t/e; scgi_temp_path t/g; server { listen 127.0.0.1:%s; root d; location /moved { return 301 /x; } } }' $PORT > t/conf
            nginx -p $PWD -c t/conf -e stderr & up; c() { curl -s \"$@\"; }; c http://127.0.0.1:$PORT/x; c -o /dev/null -w '%{http_code}\n' http://127.0.0.1:$PORT/moved; c -r 1-2 http://127.0.0.1:$PORT/x; echo
            kill -HUP $!; c http://127.0.0.1:$PORT/x; kill -QUIT $!; wait $!; echo $?",
    },
    Case {
        name: "node",
        needs: &["node"],
        script: r#"node -e 'const h = require("http").createServer((q, r) => r.end("ok " + q.url)).listen(+process.env.PORT, "127.0.0.1", () => require("http").get("http://127.0.0.1:" + process.env.PORT + "/p", r => r.on("data", d => { console.log(d.toString()); h.close(); require("child_process").exec("echo child", (e, o) => console.log(o.trim())) })))'"#,
    },
    Case {
        name: "java",
        needs: &["java"],
        script: "java -version 2>&1 | head -n 1",
    },
];

const PYTHON: &[Case] = &[
    Case {
        name: "threads",
        needs: &["python3"],
        script: "python3 -c '
import threading, time, queue, concurrent.futures as f
q = queue.Queue()
def work(i):
    time.sleep(.01 * i)
    q.put(i)
ts = [threading.Thread(target=work, args=(i,)) for i in range(5)]
[t.start() for t in ts]; [t.join() for t in ts]
print(sorted(q.queue))
print(sum(f.ThreadPoolExecutor(8).map(lambda x: x * x, range(200))))
e = threading.Event(); print(e.wait(.05)); c = threading.Condition()
with c: print(c.wait(.05))
'",
    },
    Case {
        name: "processes",
        needs: &["python3"],
        script: "python3 -c '
import subprocess, multiprocessing as m, os
print(subprocess.run([\"ls\", \"d\"], capture_output=True, text=True))
p = subprocess.Popen([\"cat\"], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
print(len(p.communicate(b\"x\" * 300000)[0]), subprocess.call(\"exit 3\", shell=True))
try: subprocess.run([\"sleep\", \"5\"], timeout=.1)
except subprocess.TimeoutExpired: print(\"late\")
r, w = os.pipe()
if os.fork() == 0:
    os.write(w, b\"child\"); os._exit(9)
print(os.read(r, 9), os.wait()[1] >> 8)
with m.Pool(3) as p: print(p.map(abs, [-1, 2, -3]))
q = m.Queue(); x = m.Process(target=q.put, args=(5,)); x.start(); print(q.get()); x.join(); print(x.exitcode)
v = m.Value(\"i\", 3); print(v.value)
'",
    },
    Case {
        name: "asyncio",
        needs: &["python3"],
        script: "python3 -c '
import asyncio
async def serve(a, b):
    b.write(await a.readline()); await b.drain(); b.close()
async def main():
    await asyncio.sleep(.1)
    r = await asyncio.create_subprocess_exec(\"echo\", \"hi\", stdout=-1)
    print(await r.communicate())
    s = await asyncio.start_server(serve, \"127.0.0.1\", 0)
    a, b = await asyncio.open_connection(*s.sockets[0].getsockname())
    b.write(b\"yo\\n\"); print(await a.read())
    print(await asyncio.gather(*(asyncio.sleep(.01 * i, i) for i in range(9))))
    try: await asyncio.wait_for(asyncio.sleep(9), .05)
    except asyncio.TimeoutError: print(\"late\")
    return await asyncio.get_running_loop().run_in_executor(None, lambda: 7)
print(asyncio.run(main()))
'",
    },
    Case {
        name: "sockets",
        needs: &["python3"],
        script: "python3 -c '
import select, socket, os, struct, array
a, b = socket.socketpair(); e = select.epoll(); e.register(a, select.EPOLLIN)
print(e.poll(0)); b.send(b\"x\"); print(len(e.poll()), select.select([a], [b], [], 1)[0] == [a])
p = select.poll(); p.register(a); print(len(p.poll(0)), a.recv(9))
r, w = os.pipe(); socket.send_fds(b, [b\"fd\"], [w]); m, fds, _, _ = socket.recv_fds(a, 9, 1); os.write(fds[0], b\"passed\"); print(m, os.read(r, 9))
u = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); u.bind((\"127.0.0.1\", 0)); u.sendto(b\"dgram\", u.getsockname()); print(u.recv(9)); u.settimeout(.05)
try: u.recv(9)
except TimeoutError: print(\"late\")
l = socket.create_server((\"127.0.0.1\", 0)); c = socket.create_connection(l.getsockname()); s, _ = l.accept()
c.sendall(b\"z\" * 50000); c.shutdown(socket.SHUT_WR); n = 0
while d := s.recv(4096): n += len(d)
print(n); s.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack(\"ii\", 1, 0)); s.close()
try: print(c.recv(1))
except ConnectionResetError as x: print(x)
l.close()
try: socket.create_connection(l.getsockname() if False else (\"127.0.0.1\", 1))
except OSError as x: print(x)
print(set(socket.getaddrinfo(\"localhost\", 80, socket.AF_INET, socket.SOCK_STREAM)))
'",
    },
    Case {
        name: "python and files",
        needs: &["python3"],
        script: "python3 -c '
import tempfile, os, mmap, json, ssl, hashlib, sqlite3, shutil, fcntl
d = tempfile.TemporaryDirectory(); f = tempfile.NamedTemporaryFile(); f.write(b\"x\"); f.flush(); print(os.path.getsize(f.name))
print(sorted((a, sorted(b), sorted(c)) for a, b, c in os.walk(\".\")))
m = open(\"m\", \"w+b\"); m.truncate(8192); p = mmap.mmap(m.fileno(), 8192); p[0:5] = b\"hello\"; p.flush(); print(open(\"m\", \"rb\").read(5)); p.resize(16384); print(len(p))
shutil.copytree(\"d\", \"e\"); os.replace(\"e/x\", \"e/y\"); print(os.listdir(\"e\")); fcntl.flock(m, fcntl.LOCK_EX)
c = sqlite3.connect(\"t.db\"); c.execute(\"create table t(a, b)\"); c.executemany(\"insert into t values (?, ?)\", [(i, str(i)) for i in range(1000)]); c.commit()
c.execute(\"pragma journal_mode=wal\"); c.execute(\"delete from t where a < 500\"); c.commit(); print(c.execute(\"select count(*), sum(a) from t\").fetchone())
print(json.dumps({\"a\": [1, 2]}), ssl.OPENSSL_VERSION[:7], hashlib.sha256(b\"x\").hexdigest())
'",
    },
    Case {
        name: "signals",
        needs: &["python3"],
        script: "python3 -c '
import signal, os, time
signal.signal(signal.SIGALRM, lambda s, f: print(\"alarm\")); signal.setitimer(signal.ITIMER_REAL, .05); time.sleep(.2)
signal.signal(signal.SIGUSR1, lambda *a: print(\"usr1\")); os.kill(os.getpid(), signal.SIGUSR1)
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR2]); print(signal.sigtimedwait([signal.SIGUSR2], .1)); os.kill(os.getpid(), signal.SIGUSR2); print(signal.sigwait([signal.SIGUSR2]))
if os.fork() == 0: os.abort()
print(os.wait()[1] & 127)
'",
    },
    Case {
        name: "http in one process",
        needs: &["python3"],
        script: "python3 -c '
import http.server, threading, urllib.request, functools
s = http.server.ThreadingHTTPServer((\"127.0.0.1\", 0), functools.partial(http.server.SimpleHTTPRequestHandler, directory=\"d\"))
threading.Thread(target=s.serve_forever, daemon=True).start()
for _ in range(3): print(urllib.request.urlopen(\"http://127.0.0.1:%d/x\" % s.server_port).read())
s.shutdown()
' 2>/dev/null",
    },
    // The server refuses what is posted without reading it. Were it sent all the same, the server's end would reset the connection, and
    // natively the refusal would be lost or not, depending on who is faster; so curl asks before it sends.
    Case {
        name: "curl against http.server",
        needs: &["python3", "curl"],
        script: "python3 -m http.server --bind 127.0.0.1 -d d $PORT > /dev/null 2>&1 & up; curl -s http://127.0.0.1:$PORT/x
            curl -s -I http://127.0.0.1:$PORT/x | head -n 1; curl -s http://localhost:$PORT/none | wc -l; curl -s http://127.0.0.1:$PORT/x http://127.0.0.1:$PORT/x
            curl -s -H 'Expect: 100-continue' --data-binary @big http://127.0.0.1:$PORT/ | wc -l; kill %1; wait; curl -s http://127.0.0.1:$PORT/; echo $?",
    },
];

/// A directory with the same small things in it, and what is there afterwards.
fn prepare(name: &str) -> PathBuf {
    let dir = Path::new(env!("CARGO_TARGET_TMPDIR")).join("programs").join(name.replace(' ', "-"));
    let _ignored = std::fs::remove_dir_all(&dir);
    std::fs::create_dir_all(dir.join("d")).expect("a directory");
    let numbers: String = (0..20_000u32).map(|i| format!("{}\n", i.wrapping_mul(7919) % 20_011)).collect();
    for (file, content) in [("f", "b\na\nc\n"), ("d/x", "hello\n"), ("big", &numbers)] {
        std::fs::write(dir.join(file), content).expect("a file");
    }
    dir
}

/// Every path below `dir` with size and time of change.
fn listing(dir: &Path) -> BTreeMap<PathBuf, (u64, i64, i64)> {
    let mut found = BTreeMap::new();
    let mut todo = vec![dir.to_path_buf()];
    while let Some(path) = todo.pop() {
        let meta = std::fs::symlink_metadata(&path).expect("a file");
        if meta.is_dir() {
            todo.extend(std::fs::read_dir(&path).expect("a directory").map(|e| e.expect("an entry").path()));
        }
        found.insert(path, (meta.size(), meta.ctime(), meta.ctime_nsec()));
    }
    found
}

/// A port that is free on the host now.
fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").and_then(|l| l.local_addr()).expect("a port").port()
}

fn check(case: &Case) -> Result<(), String> {
    if !have(case.needs, case.name) {
        return Ok(());
    }
    let dir = prepare(case.name);
    let port = format!("PORT={}", free_port());
    let home = format!("HOME={}", dir.display());
    let script = format!("{UP}\n{}", case.script);
    let simulated = |how: &[&str]| {
        let options = [&["--summary", "--seed", "5", "-e", &port, "-e", &home], how].concat();
        finish(exec(&options, &["bash".into(), "-c".into(), (&script).into()]).current_dir(&dir), b"")
    };
    let before = listing(&dir);
    let first = simulated(&[]);
    // Real programs have the many mappings and processes that conformance programs have not. The second run is one in which every
    // known block of all programs and libraries is observed, as code coverage does it.
    for how in [["--observe", "blocks"], ["--stress", "17"]] {
        let again = simulated(&how);
        if first.determined() != again.determined() {
            return Err(format!("{how:?} gives something else:\n{first:#?}\n{again:#?}"));
        }
    }
    if listing(&dir) != before {
        return Err("the host's files have changed".into());
    }
    let mut command = Command::new("env");
    command.args(["-i", PATH, &home, "LANG=C.UTF-8", &port, "bash", "-c", &script]).current_dir(&dir);
    let native = finish(&mut command, b"");
    if (native.code, &native.stdout) != (first.code, &first.stdout) {
        return Err(format!("natively {native:#?}\nunder exec {first:#?}"));
    }
    Ok(())
}

fn check_all(cases: &[Case]) {
    let wrong = Mutex::new(Vec::new());
    in_parallel(cases, |case| {
        if let Err(text) = check(case) {
            wrong.lock().expect("no panic").push(format!("{}: {text}", case.name));
        }
    });
    let wrong = wrong.into_inner().expect("no panic");
    assert!(wrong.is_empty(), "{}", wrong.join("\n\n"));
}

#[test]
fn the_shell_and_its_tools_run_as_natively() {
    check_all(SHELL);
}

#[test]
fn python_runs_as_natively() {
    check_all(PYTHON);
}

/// Standard input, exit codes and signals pass through.
#[test]
fn what_is_around_a_program_passes_through() {
    let dir = prepare("around");
    let run = |program: &[&str], input: &[u8]| -> Ran {
        let program: Vec<_> = program.iter().map(Into::into).collect();
        finish(exec(&[], &program).current_dir(&dir), input)
    };
    let input: Vec<u8> = (0..30_000u32).flat_map(|i| format!("{}\n", i % 1000).into_bytes()).collect();
    let sorted = run(&["sort", "-n"], &input);
    assert_eq!((sorted.code, sorted.stdout.lines().count()), (Some(0), 30_000));
    assert!(sorted.stdout.starts_with("0\n0\n") && sorted.stdout.ends_with("999\n999\n"));
    let both = run(&["sh", "-c", "echo out; echo err >&2; exit 42"], b"");
    assert_eq!((both.code, both.stdout.as_str()), (Some(42), "out\n"));
    // Before it there may be a warning of what the platform cannot do.
    assert!(
        both.stderr == "err\n"
            || both.stderr.starts_with("bloodhound: warning") && both.stderr.ends_with("\nerr\n")
    );
    // As a shell tells the end by a signal.
    assert_eq!(run(&["sh", "-c", "kill -KILL $$"], b"").code, Some(128 + 9));
    assert_eq!(run(&["no-such-program"], b"").code, Some(127));
}

/// The tokio server of conformance/, static and dynamic, driven by curl.
#[test]
fn tokio_serves_curl() {
    let server = |kind: &str| repository().join("conformance/bin").join(kind).join("tokio-server");
    if !have(&["gcc", "curl"], "tokio_serves_curl") {
        return;
    }
    let built = Command::new("sh").arg(repository().join("conformance/build.sh")).output().expect("sh");
    assert!(built.status.success(), "build.sh: {}", String::from_utf8_lossy(&built.stderr));
    let mut outputs = Vec::new();
    for kind in ["static", "dynamic"] {
        let dir = prepare(&format!("tokio {kind}"));
        // The server's output goes into a file of its own: what it and curl print at the same time may come in either order.
        let script = format!(
            "{UP} PORT=8123; {} 127.0.0.1:8123 8 > served & up; for i in 1 2 3; do curl -s -d body$i http://127.0.0.1:8123/p$i; done; \
             curl -s http://127.0.0.1:8123/a http://127.0.0.1:8123/b http://127.0.0.1:8123/c; curl -s http://127.0.0.1:8123/d; wait $!; echo $?; cat served",
            server(kind).display()
        );
        let program = ["bash".into(), "-c".into(), script.into()];
        let read = server(kind).display().to_string();
        let run = |more: &[&str]| {
            let options = [&["--summary", "--read", &read], more].concat();
            finish(exec(&options, &program).current_dir(&dir), b"")
        };
        let first = run(&[]);
        assert_eq!(first.code, Some(0), "{first:#?}");
        assert!(first.stdout.contains("served 8 requests"), "{first:#?}");
        assert_eq!(first.determined(), run(&["--stress", "11"]).determined(), "{kind}");
        outputs.push(first.stdout);
    }
    assert_eq!(outputs[0], outputs[1]);
}

#[test]
fn a_program_has_an_init_above_it_that_never_runs() {
    let shell =
        |script: &str| finish(&mut exec(&["--strace"], &["/bin/sh".into(), "-c".into(), script.into()]), b"");
    // An orphan is forgotten when it ends, and its parent is process 1.
    let ran = shell(
        "echo $$ $PPID; (/bin/sh -c 'echo $PPID; exec sleep 1' &); sleep 2; ls -d /proc/[0-9]*; exit 3",
    );
    assert_eq!(ran.code, Some(3), "{}", ran.stderr);
    let lines: Vec<&str> = ran.stdout.lines().collect();
    assert_eq!(lines[0], "2 1", "{}", ran.stdout);
    assert_eq!(lines[2..4], ["/proc/1", "/proc/2"], "{}", ran.stdout);
    assert_eq!(lines.len(), 4, "{}", ran.stdout);
    assert!(!ran.stderr.contains("[1] "), "{}", ran.stderr);
    // How it ends is how the program ends, and nothing waits for the init.
    assert_eq!(shell("kill -TERM 1; kill -SEGV $$").code, Some(139));
    let stuck = shell("mkfifo /tmp/stuck; cat /tmp/stuck");
    assert_eq!(stuck.code, Some(1), "{}", stuck.stderr);
    assert!(stuck.stderr.contains("deadlock") && !stuck.stderr.contains("docker-init"), "{}", stuck.stderr);
}
