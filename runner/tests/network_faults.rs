//! Faults of the network beside loss and partitions, as programs see them: MTU black holes, forgotten connections, lost SYNs, thin links,
//! name servers that fail or are late, and corruption that no checksum shows. Each run is made twice and must be the same.

use std::path::PathBuf;

use crate::common::*;

/// What both sides begin with: reads so many bytes of a connection.
const WHOLE: &str = "def whole(c, n):\n\
    \x20   out = b''\n\
    \x20   while len(out) < n:\n\
    \x20       piece = c.recv(n - len(out))\n\
    \x20       if not piece: raise EOFError\n\
    \x20       out += piece\n\
    \x20   return out\n";

/// Answers each message of a connection, which is a length in 8 digits and so many bytes, with itself.
const SERVER: &str = "import socket, threading\n\
    def serve(c):\n\
    \x20   try:\n\
    \x20       while True:\n\
    \x20           n = whole(c, 8)\n\
    \x20           c.sendall(n + whole(c, int(n)))\n\
    \x20   except (EOFError, OSError, ValueError): c.close()\n\
    s = socket.create_server(('0.0.0.0', 7000), backlog=64)\n\
    print('up', flush=True)\n\
    while True:\n\
    \x20   c, _ = s.accept()\n\
    \x20   threading.Thread(target=serve, args=(c,), daemon=True).start()\n";

/// What clients begin with: `ask(c, n)` has n bytes echoed, and `ms()` is the time.
const CLIENT: &str = "import socket, time\n\
    def ms(): return time.monotonic_ns() // 1000000\n\
    def ask(c, n):\n\
    \x20   sent = b'%08d' % n + b'x' * n\n\
    \x20   c.sendall(sent)\n\
    \x20   return whole(c, n + 8) == sent\n\
    def say(*what): print(*what, flush=True)\n\
    def connect(): return socket.create_connection(('server', 7000))\n";

fn stack_of(name: &str, client: &str, faults: &str) -> PathBuf {
    let compose = "services:\n\
        \x20 server: {x-bloodhound: {rootfs: host}, volumes: ['./server.py:/src/run.py:ro'], command: [/usr/bin/python3, /src/run.py]}\n\
        \x20 client: {x-bloodhound: {rootfs: host}, volumes: ['./client.py:/src/run.py:ro'], command: [/usr/bin/python3, /src/run.py], depends_on: [server]}\n";
    let config = format!(
        "compose: compose.yaml\n\
         simulation: {{max_time: 40s, start_spread: 0s, clock_spread: 0s, cost_spread: 0}}\n\
         faults: {{swarm: false, duration: 20s, {faults}}}\n\
         properties: [{{name: up, kind: safety, check: {{type: no-crash}}}}]\n"
    );
    let (server, client) = (format!("{WHOLE}{SERVER}"), format!("{WHOLE}{CLIENT}{client}"));
    stack(
        name,
        &[
            ("compose.yaml", compose),
            ("bloodhound.yaml", &config),
            ("server.py", &server),
            ("client.py", &client),
        ],
    )
}

/// The numbers that the client printed behind a word.
fn numbers(ran: &Ran, word: &str) -> Vec<u64> {
    let of = |line: &&str| line.strip_prefix(word)?.trim().parse().ok();
    lines(ran, "client").iter().filter_map(of).collect()
}

#[test]
fn large_packets_vanish_in_an_mtu_black_hole_and_small_ones_do_not() {
    let client = "while True:\n\
        \x20   c = connect()\n\
        \x20   a = ms(); ask(c, 100); b = ms(); ask(c, 5000); d = ms()\n\
        \x20   say('small', b - a); say('large', d - b)\n\
        \x20   c.close(); time.sleep(0.3)\n";
    let network = "network: {mtu_probability: 0.002, mtu_bytes: 1000, mtu_duration_ms: [2000, 2000]}";
    let ran = run_twice(&stack_of("faults-mtu", client, network));
    assert!(ran.faults("of more than 1000 bytes are lost, for 2000 ms") > 0, "{}", ran.shown());
    assert!(ran.faults("is over") > 0, "{}", ran.shown());
    let (small, large) = (numbers(&ran, "small"), numbers(&ran, "large"));
    assert!(small.iter().all(|ms| *ms < 100), "{small:?}");
    assert!(large.iter().any(|ms| *ms < 100) && large.iter().any(|ms| *ms > 1500), "{large:?}");
}

#[test]
fn a_forgotten_connection_is_silent_and_another_one_works() {
    let client = "c = connect()\n\
        while True:\n\
        \x20   c.settimeout(2)\n\
        \x20   a = ms()\n\
        \x20   try: ask(c, 10); say('answered', ms() - a)\n\
        \x20   except socket.timeout:\n\
        \x20       say('silent', ms() - a)\n\
        \x20       c = connect(); say('connected', ms() - a)\n\
        \x20   time.sleep(0.2)\n";
    let network = "network: {half_open_probability: 0.001, half_open_duration_ms: [10000, 10000]}";
    let ran = run_twice(&stack_of("faults-half-open", client, network));
    assert!(ran.faults("is forgotten by the network, for 10000 ms") > 0, "{}", ran.shown());
    assert!(ran.faults(" connection 10.") > 0, "{}", ran.shown());
    let silent = numbers(&ran, "silent");
    assert!(!silent.is_empty() && silent.iter().all(|ms| *ms == 2000), "no reset: {silent:?}");
    assert_eq!(numbers(&ran, "connected").len(), silent.len());
}

#[test]
fn connections_to_a_node_that_takes_none_come_late() {
    let client = "keeps = connect()\n\
        while True:\n\
        \x20   a = ms(); c = connect(); b = ms(); ask(keeps, 10)\n\
        \x20   say('connect', b - a); say('open', ms() - b)\n\
        \x20   c.close(); time.sleep(0.2)\n";
    let network = "network: {syn_drop_probability: 0.001, syn_drop_duration_ms: [1500, 1500]}";
    let ran = run_twice(&stack_of("faults-syn", client, network));
    assert!(
        ran.faults("server takes no new connections (SYNs to it are lost), for 1500 ms") > 0,
        "{}",
        ran.shown()
    );
    let connect = numbers(&ran, "connect");
    // A SYN is sent again after 1 s and 3 s, as with Linux's TCP_TIMEOUT_INIT.
    assert!(
        connect.iter().all(|ms| *ms < 10 || (1000..1010).contains(ms) || (3000..3010).contains(ms)),
        "{connect:?}"
    );
    assert!(connect.iter().any(|ms| *ms < 10) && connect.iter().any(|ms| *ms >= 1000), "{connect:?}");
    assert!(numbers(&ran, "open").iter().all(|ms| *ms < 100), "what is open works: {}", ran.shown());
}

#[test]
fn a_thin_link_carries_so_much_in_a_second() {
    let client = "c = connect()\n\
        time.sleep(1)\n\
        while True:\n\
        \x20   a = ms(); ask(c, 100000); say('took', ms() - a)\n\
        \x20   time.sleep(0.5)\n";
    let faults = "start_after: 5s, network: {bandwidth_kbit: 800}";
    let ran = run_twice(&stack_of("faults-bandwidth", client, faults));
    assert!(ran.stdout.contains("faults: bandwidth 800"), "{}", ran.shown());
    let took = numbers(&ran, "took");
    // 100 kB go there and come back at 100 kB/s each way, with headers of 3 %; the phase of faults begins after some.
    assert!(took[0] < 200, "{took:?}");
    assert!(took[took.len() - 4..].iter().all(|ms| (2000..2200).contains(ms)), "{took:?}");
}

#[test]
fn names_fail_and_come_late_as_they_are_asked_to() {
    let client = "while True:\n\
        \x20   a = ms()\n\
        \x20   try: socket.getaddrinfo('server', 7000, family=socket.AF_INET); say('known', ms() - a)\n\
        \x20   except socket.gaierror as e: say('again' if e.errno == socket.EAI_AGAIN else 'wrong', ms() - a)\n\
        \x20   time.sleep(0.1)\n";
    let ran = run_twice(&stack_of("faults-dns", client, "network: {dns_fail_rate: 0.3}"));
    assert!(ran.faults("client asks its name server, which answers SERVFAIL") > 0, "{}", ran.shown());
    assert!(ran.faults("client asks its name server and gets no answer") > 0, "{}", ran.shown());
    let (known, again) = (numbers(&ran, "known"), numbers(&ran, "again"));
    assert!(!again.is_empty() && numbers(&ran, "wrong").is_empty(), "{}", ran.shown());
    // "timeout:n  Sets the amount of time the resolver will wait for a response [...] The default is RES_TIMEOUT (currently 5 [...])"
    // (resolv.conf(5)).
    assert!(known.iter().any(|ms| *ms < 10) && known.iter().any(|ms| *ms >= 5000), "{known:?}");
    let late = run_twice(&stack_of("faults-dns-late", client, "network: {dns_delay_ms: 400}"));
    let known = numbers(&late, "known");
    assert!(known.iter().any(|ms| *ms > 200) && known.iter().all(|ms| *ms <= 401), "{known:?}");
    assert_eq!(numbers(&late, "again").len(), 0, "{}", late.shown());
}

#[test]
fn corruption_that_passes_reaches_the_program() {
    let client = "c = connect()\n\
        while True:\n\
        \x20   try: say('right' if ask(c, 1000) else 'changed', 1)\n\
        \x20   except (EOFError, OSError): say('closed', 1); c = connect()\n\
        \x20   c.settimeout(1)\n\
        \x20   time.sleep(0.05)\n";
    let ran = run_twice(&stack_of("faults-corrupt-pass", client, "network: {corrupt_pass_rate: 0.02}"));
    let (right, changed) = (numbers(&ran, "right").len(), numbers(&ran, "changed").len());
    assert!(right > 100 && changed > 0, "{right} right, {changed} changed: {}", ran.shown());
}

#[test]
fn a_single_link_is_cut_where_it_is_named() {
    let client = "time.sleep(100)\n";
    let network =
        "network: {partition_probability: 0.001, partition_duration_ms: 500, partition_kinds: [link]}";
    let ran = run_twice(&stack_of("faults-link", client, network));
    assert!(ran.faults("partition [") > 0, "{}", ran.shown());
}
