//! What Linux does rarely and may do, and limits that others have reached, as programs see it: full backlogs, FINs that are late, connections that
//! are reset before they are accepted, sends of a part, datagrams with wrong checksums, other orders of epoll, limits of inotify and
//! pipes. Each run is made twice and must be the same; without the fault the same program sees nothing of it.

use std::path::{Path, PathBuf};

use crate::common::{Ran, compile, have, lines, put, repository, run_twice, scratch};

/// A stack of a server and a client in these modes of `data/rare/rare.c`; `None` without a compiler.
fn stack(name: &str, (server, client): (&str, &str), faults: &str) -> Option<PathBuf> {
    if !have(&["cc"], "programs that see what is rare") {
        return None;
    }
    let dir = scratch(&format!("rare-{name}"));
    compile(&repository().join("runner/tests/data/rare/rare.c"), &dir.join("program"), &["-O1"]);
    let service = |name: &str, mode: &str, more: &str| {
        format!(
            "  {name}: {{x-bloodhound: {{rootfs: host}}, volumes: ['./:/app:ro'], command: [/app/program, {mode}]{more}}}\n"
        )
    };
    let client =
        if client.is_empty() { String::new() } else { service("client", client, ", depends_on: [server]") };
    put(&dir, "compose.yaml", &format!("services:\n{}{client}", service("server", server, "")));
    configure(&dir, faults);
    Some(dir)
}

fn configure(dir: &Path, faults: &str) {
    let config = format!(
        "compose: compose.yaml\n\
         output: {{dir: out}}\n\
         simulation: {{max_time: 40s, start_spread: 0s, clock_spread: 0s, cost_spread: 0}}\n\
         faults: {{swarm: false, duration: 20s, {faults}}}\n\
         properties: [{{name: up, kind: safety, check: {{type: no-crash}}}}]\n"
    );
    put(dir, "bloodhound.yaml", &config);
}

/// How many lines of a service begin so.
fn said(ran: &Ran, service: &str, text: &str) -> usize {
    lines(ran, service).iter().filter(|line| line.starts_with(text)).count()
}

/// The numbers that a service printed behind a word.
fn numbers(ran: &Ran, service: &str, word: &str) -> Vec<u64> {
    let of = |line: &&str| line.strip_prefix(word)?.trim().parse().ok();
    lines(ran, service).iter().filter_map(of).collect()
}

#[test]
fn connections_to_a_listener_with_a_full_backlog_come_late() {
    let network = "network: {backlog_full_probability: 0.001, backlog_full_duration_ms: [1500, 1500]}";
    let Some(dir) = stack("backlog", ("accepts", "connects"), network) else { return };
    let ran = run_twice(&dir);
    assert!(ran.faults("the backlog of a listener of server is full, for 1500 ms") > 0, "{}", ran.shown());
    assert!(ran.faults("listener 0.0.0.0:7000 takes no more connections") > 0, "{}", ran.shown());
    assert!(ran.faults("backlog-full of server is over") > 0, "{}", ran.shown());
    let connect = numbers(&ran, "client", "connect");
    // A SYN is sent again after 1 s and 3 s.
    assert!(
        connect.iter().all(|ms| *ms < 10 || (1000..1010).contains(ms) || (3000..3010).contains(ms)),
        "{connect:?}"
    );
    assert!(connect.iter().any(|ms| *ms < 10) && connect.iter().any(|ms| *ms >= 1000), "{connect:?}");
    assert_eq!(said(&ran, "client", "refused") + said(&ran, "client", "broken"), 0, "{}", ran.shown());
}

#[test]
fn the_end_of_a_connection_comes_late_where_fins_are_lost() {
    let network = "network: {fin_drop_probability: 0.001, fin_drop_duration_ms: [900, 900]}";
    let Some(dir) = stack("fin", ("accepts", "connects"), network) else { return };
    let ran = run_twice(&dir);
    assert!(
        ran.faults("connections that client closes end late (its FINs are lost), for 900 ms") > 0,
        "{}",
        ran.shown()
    );
    let ends = numbers(&ran, "server", "end");
    assert!(ends.iter().any(|ms| *ms < 10) && ends.iter().any(|ms| (200..3000).contains(ms)), "{ends:?}");
    assert!(numbers(&ran, "client", "answer").iter().all(|ms| *ms < 10), "data arrives: {}", ran.shown());
}

#[test]
fn connections_that_are_reset_in_the_queue_are_accepted_all_the_same() {
    let Some(dir) = stack("reset", ("accepts", "connects"), "kernel: {accept_reset_rate: 0.1}") else {
        return;
    };
    let ran = run_twice(&dir);
    let hit = ran.faults("accept-reset: accept by server");
    assert!(hit > 1, "{}", ran.shown());
    assert_eq!(said(&ran, "server", "reset ENOTCONN ECONNRESET"), hit, "{}", ran.shown());
    assert_eq!(said(&ran, "server", "accept "), 0, "{}", ran.shown());
    assert_eq!(
        said(&ran, "client", "broken ECONNRESET") + said(&ran, "client", "broken EPIPE"),
        hit,
        "{}",
        ran.shown()
    );
    assert!(said(&ran, "client", "answer") > hit, "{}", ran.shown());
}

#[test]
fn sends_that_do_not_block_take_a_part_and_epollout_comes_anew() {
    let Some(dir) = stack("part", ("sinks", "fills"), "kernel: {partial_send_rate: 0.3}") else { return };
    let ran = run_twice(&dir);
    let client = lines(&ran, "client");
    for name in ["tcp", "unix"] {
        let parts = said(&ran, "client", &format!("{name} part"));
        assert!(parts > 5, "{name}: {}", ran.shown());
        assert!(client.contains(&&*format!("{name} all")), "{name}: {}", ran.shown());
    }
    assert!(
        !client.iter().any(|line| line.ends_with("no edge") || line.ends_with("torn")),
        "{}",
        ran.shown()
    );
    let told = ran.faults("partial-send: sendto by client");
    assert!(
        told > 10 && told <= said(&ran, "client", "tcp part") + said(&ran, "client", "unix part"),
        "{}",
        ran.shown()
    );
    configure(&dir, "kernel: {}");
    let plain = run_twice(&dir);
    assert_eq!(said(&plain, "client", "tcp part"), 0, "{}", plain.shown());
}

#[test]
fn a_datagram_with_a_wrong_checksum_is_ready_for_who_does_not_block_only() {
    let Some(dir) = stack("checksum", ("hears", "tells"), "network: {bad_checksum_rate: 0.05}") else {
        return;
    };
    let ran = run_twice(&dir);
    assert!(said(&ran, "server", "spurious EAGAIN") > 10, "{}", ran.shown());
    assert_eq!(said(&ran, "server", "blocking E"), 0, "udp_poll looks for who blocks: {}", ran.shown());
    let (some, others) = (numbers(&ran, "server", "got"), numbers(&ran, "server", "blocking got"));
    assert!(some.last() > Some(&1000) && others.last() > Some(&1000), "{}", ran.shown());
    configure(&dir, "network: {}");
    let plain = run_twice(&dir);
    assert_eq!(said(&plain, "server", "spurious"), 0, "{}", plain.shown());
}

#[test]
fn epoll_tells_of_connections_in_another_order_and_of_a_pipe_in_its_own() {
    let Some(dir) = stack("epoll", ("gathers", "spells"), "kernel: {epoll_reorder_rate: 0.3}") else {
        return;
    };
    let ran = run_twice(&dir);
    let orders: Vec<&str> =
        lines(&ran, "server").iter().filter_map(|line| line.strip_prefix("order ")).collect();
    let told = ran.faults("epoll-reorder: epoll_wait by server");
    let others = orders.iter().filter(|order| order.len() == 5 && **order != "-abcd").count();
    assert!(told > 5 && others == told, "{told} of {orders:?}");
    assert!(orders.iter().all(|order| order.starts_with('-')), "{orders:?}");
    assert!(
        orders.contains(&"-abcd") && orders.contains(&"-bcda") && orders.contains(&"-dabc"),
        "{orders:?}"
    );
}

#[test]
fn limits_of_inotify_and_pipes_are_reached_by_others() {
    let rates =
        "resources: {inotify_limit_rate: 0.1, pipe_limit_rate: 0.1}, kernel: {inotify_overflow_rate: 0.2}";
    let Some(dir) = stack("limits", ("limits", ""), rates) else { return };
    let ran = run_twice(&dir);
    assert_eq!(said(&ran, "server", "rounds"), 1, "{}", ran.shown());
    for (line, fault) in [
        ("init EMFILE", "inotify-limit: inotify_init1 by server"),
        ("watch ENOSPC", "inotify-limit: inotify_add_watch of /tmp by server"),
        ("overflow -1", "inotify-overflow: read by server"),
        ("pipe 8192", "pipe-limit: pipe"),
        ("grow EPERM", "pipe-limit: fcntl by server"),
    ] {
        let count = said(&ran, "server", line);
        assert!(count > 0 && count == ran.faults(fault), "{line}: {count}: {}", ran.shown());
    }
}
