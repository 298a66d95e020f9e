//! Sets and gets the options that tests/linux/record_options.py did on a real Linux and compares what they give.

use bloodhound_abi::consts as c;
use bloodhound_abi::table::nr;

use crate::caps::CAP_NET_RAW;
use crate::testing::Bench;

fn bytes(hex: &str) -> Vec<u8> {
    let digit = |i: usize| u8::from_str_radix(&hex[i..i + 2], 16).unwrap();
    if hex == "empty" { Vec::new() } else { (0..hex.len()).step_by(2).map(digit).collect() }
}

fn hex(bytes: &[u8]) -> String {
    if bytes.is_empty() { "empty".into() } else { bytes.iter().map(|b| format!("{b:02x}")).collect() }
}

fn socket(bench: &mut Bench, kind: &str) -> u64 {
    let (domain, kind) = match kind {
        "tcp" => (c::AF_INET, c::SOCK_STREAM),
        "tcp6" => (c::AF_INET6, c::SOCK_STREAM),
        "udp" => (c::AF_INET, c::SOCK_DGRAM),
        "udp6" => (c::AF_INET6, c::SOCK_DGRAM),
        _ => (c::AF_UNIX, c::SOCK_STREAM),
    };
    bench.call(nr::socket, &[domain, kind, 0]).unwrap()
}

fn run(bench: &mut Bench, fd: u64, level: u64, name: u64, op: &str, arg: &str) -> String {
    let tid = bench.tid;
    if op == "set" {
        let body = bytes(arg);
        let at = bench.put_as(tid, &body);
        let result = bench.call(nr::setsockopt, &[fd, level, name, at, body.len() as u64]);
        return result.map_or_else(|e| e.name().into(), |_| "ok".into());
    }
    let room: u32 = arg.parse().unwrap();
    let at = bench.put_as(tid, &[&room.to_le_bytes()[..], &[0xee; 76]].concat());
    match bench.call(nr::getsockopt, &[fd, level, name, at + 16, at]) {
        Err(e) => e.name().into(),
        Ok(_) => {
            let len = bench.object::<u32>(tid, at);
            hex(&bench.get_as(tid, at + 16, len as usize))
        }
    }
}

/// A process as that of the recording: without CAP_NET_RAW, and CAP_NET_ADMIN, which no container has.
fn without_raw() -> Bench {
    let mut bench = Bench::new();
    bench.node.task_mut(bench.tid).credentials.caps.effective &= !(1 << CAP_NET_RAW);
    bench
}

#[test]
fn options_answer_as_linux_did() {
    let mut bench = without_raw();
    let (mut current, mut fd, mut wrong) = (String::new(), 0, Vec::new());
    for line in include_str!("../../../tests/linux/options.txt").lines() {
        let (call, want) = line.split_once(" = ").unwrap();
        let w: Vec<&str> = call.split(' ').collect();
        let this = w[..3].join(" ");
        if this != current {
            bench = without_raw();
            fd = socket(&mut bench, w[0]);
            current = this;
        }
        let got = run(&mut bench, fd, w[1].parse().unwrap(), w[2].parse().unwrap(), w[3], w[4]);
        if got != want {
            wrong.push(format!("{call}: {got}, not {want}"));
        }
    }
    assert!(wrong.is_empty(), "{} answers differ:\n{}", wrong.len(), wrong.join("\n"));
}
