//! Servers of the distribution with the files that their packages install: each starts, serves, and stops, on every platform, with
//! one digest, whatever else the machine does. `servers/NAME.sh` says what is done with each.
//!
//! What is not installed is left out, with a line that says so; CI has everything.

use crate::common::*;

/// A script, the programs that it needs, the files of their packages that not everybody on the host may read, and what it prints.
struct Server {
    name: &'static str,
    needs: &'static [&'static str],
    read: &'static [&'static str],
    prints: &'static str,
}

const SERVERS: &[Server] = &[
    Server {
        name: "apache",
        needs: &["apachectl", "curl"],
        read: &[],
        prints: "Server MPM: event\n 20 200\n404\n 20 200\nended\n\
                 Server MPM: prefork\n 20 200\n404\n 20 200\nended\n",
    },
    Server {
        name: "bind",
        needs: &["named", "dig"],
        read: &[],
        prints: "127.0.0.1\nlocalhost.\n127.0.0.1\nserver is up and running\nstatus 0\n",
    },
    Server { name: "dnsmasq", needs: &["dnsmasq", "dig"], read: &[], prints: "10.1.2.3\n10.1.2.3\nended\n" },
    Server {
        name: "haproxy",
        needs: &["haproxy", "python3", "curl", "socat"],
        read: &[],
        prints: "a page\n 20 200\n1\nstatus 0\n",
    },
    Server {
        name: "influxdb",
        needs: &["influxd", "setpriv", "curl"],
        read: &[],
        prints: "204\n{\"results\":[{\"statement_id\":0}]}\n\
                 {\"results\":[{\"statement_id\":0,\"series\":[{\"name\":\"cpu\",\"columns\":[\"time\",\"host\",\"value\"],\
                 \"values\":[[\"2015-06-11T20:46:02Z\",\"a\",0.64]]}]}]}\nstatus 0\n",
    },
    Server { name: "php", needs: &["php", "curl"], read: &[], prints: "php 2 b\n404\n 20 200\nended\n" },
    Server {
        name: "postgres",
        needs: &["pg_ctlcluster", "psql", "setpriv"],
        read: &[],
        prints: "server started\nserver started\n1001|t\nserver stopped\nserver promoted\n1002|f\nserver stopped\n",
    },
    Server {
        name: "prosody",
        needs: &["prosody", "python3", "setpriv"],
        read: &["/etc/prosody", "/var/lib/prosody"],
        prints: "starttls\nstatus 0\n",
    },
    Server {
        name: "rabbitmq",
        needs: &["rabbitmq-server", "python3", "setpriv"],
        read: &["/etc/rabbitmq", "/var/lib/rabbitmq"],
        prints: "/\nother\n(10, 10)\n(10, 30)\n(10, 41)\n(20, 11)\n(50, 11)\n(60, 71)\na message\nstatus 0\n",
    },
    Server {
        name: "slapd",
        needs: &["slapd", "ldapsearch"],
        read: &["/etc/ldap", "/var/lib/ldap"],
        prints: "ou: one\nou: two\nended\n",
    },
    Server {
        name: "squid",
        needs: &["squid", "python3", "curl"],
        read: &[],
        prints: "a page\n403\nstatus 0\nTCP_MISS/200 http://127.0.0.1/x\nTCP_DENIED/403 http://127.0.0.1:81/x\n",
    },
    Server {
        name: "sshd",
        needs: &["sshd", "ssh", "scp"],
        read: &[],
        prints: "in a shell\n0\n/dev/pts/N\nstatus 3\nthrough a pipe\ncopied\nstatus 0\n",
    },
    Server {
        name: "syslog",
        needs: &["logger", "python3"],
        read: &[],
        prints: "b'to the daemon'\nrefused\n",
    },
    Server {
        name: "unbound",
        needs: &["unbound", "dig"],
        read: &[],
        prints: "127.0.0.1\n127.0.0.1\nstatus 0\n",
    },
    Server { name: "uwsgi", needs: &["uwsgi", "curl"], read: &[], prints: "hello /x\n 20 200\nstatus 0\n" },
    Server {
        name: "varnish",
        needs: &["varnishd", "python3", "curl"],
        read: &[],
        prints: "a page\na page\na page\n1\nChild in state running\nstatus 0\n",
    },
    Server {
        name: "vsftpd",
        needs: &["vsftpd", "curl"],
        read: &[],
        // It has no handler for SIGTERM.
        prints: "7 f\na file\na file\na file\nstatus 143\n",
    },
];

/// Servers with the most traps: on a KVM that is done in software each takes a minute, so there they are left to `cargo xtask long`.
const LONG_ON_KVM: [&str; 3] = ["apache", "postgres", "rabbitmq"];

/// Runs the script of a server.
fn run(server: &Server, platform: Option<&str>, more: &[&str]) -> Ran {
    let scripts = repository().join("runner/tests/servers");
    let text = |name: &str| std::fs::read_to_string(scripts.join(name)).expect("a script");
    let script = text("lib.sh") + &text(&format!("{}.sh", server.name));
    let reads = server.read.iter().flat_map(|path| ["--read", path]);
    let options: Vec<&str> =
        ["--summary", "--max-time", "10m"].into_iter().chain(reads).chain(more.iter().copied()).collect();
    let program = ["bash".into(), "-c".into(), script.into()];
    let dir = scratch(&format!("server-{}", server.name));
    finish(exec_on(platform, &options, &program).current_dir(dir), b"")
}

/// The server of this name prints what it should, in every run.
fn serves(name: &str) {
    let server = SERVERS.iter().find(|server| server.name == name).expect("a server");
    if !have(server.needs, name) {
        return;
    }
    let first = platform().unwrap_or_else(|| "ptrace".into());
    let quiet = run(server, Some(&first), &[]);
    assert_eq!((quiet.code, quiet.stdout.as_str()), (Some(0), server.prints), "{quiet:#?}");
    // It makes twenty times as many steps as the others.
    let rhythm = if name == "rabbitmq" { "997" } else { "17" };
    let disturbed = run(server, Some(&first), &["--stress", rhythm]);
    assert_eq!(quiet.determined(), disturbed.determined(), "{name}");
    if std::fs::OpenOptions::new().read(true).write(true).open("/dev/kvm").is_err() {
        left_out(&format!("{name} on the kvm platform"), "needs /dev/kvm");
    } else if LONG_ON_KVM.contains(&name) && seeds_or(1) == 1 && crate::conformance::odd_kvm() {
        say(&format!("servers: {name} on kvm is left to cargo xtask long servers-{name}"));
    } else if platform().is_none() {
        assert_eq!(quiet.determined(), run(server, Some("kvm"), &[]).determined(), "{name}");
        figures(&format!("{name} has one digest on both platforms"));
    }
    if name == "syslog" {
        let line = "syslog daemon.err: me: to standard error";
        assert!(quiet.stderr.lines().any(|l| l == line), "{quiet:#?}");
    }
}

/// A test of each, by name.
macro_rules! servers {
    ($($name:ident)*) => {
        $(#[test]
        fn $name() {
            serves(stringify!($name));
        })*

        #[test]
        fn every_server_has_a_test() {
            assert_eq!([$(stringify!($name)),*].as_slice(), SERVERS.iter().map(|s| s.name).collect::<Vec<_>>());
        }
    };
}

servers!(apache bind dnsmasq haproxy influxdb php postgres prosody rabbitmq slapd squid sshd syslog unbound uwsgi varnish vsftpd);
