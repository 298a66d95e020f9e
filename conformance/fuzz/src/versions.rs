//! Differences that are no defects: what is simulated is Linux 6.1, and the native kernel may be newer; and a few that are meant.
//!
//! Each rule names what has changed, and since when. It holds for differences of the calls that it names only, and only where the
//! native kernel is that new; the hunt counts what the rules explain.

use std::os::unix::fs::MetadataExt;

use crate::hunt::{Difference, first_difference};

/// The first version (major, minor) that answers otherwise, and whether a difference is that one.
type Rule = ((u32, u32), fn(&Differing<'_>) -> bool);

/// The first operation that two outcomes differ in.
struct Differing<'a> {
    /// The operations before it, and itself as the last one.
    ops: &'a [String],
    call: &'a str,
    native: &'a str,
    simulated: &'a str,
    /// What the two answered, whole.
    lines: [&'a str; 2],
    /// What the operations before it answered natively.
    before: &'a [String],
}

impl Differing<'_> {
    /// Whether the call is one of these.
    fn is(&self, calls: &[&str]) -> bool {
        calls.contains(&self.call)
    }

    /// An argument of the operation.
    fn argument(&self, number: usize) -> &str {
        self.ops.last().map_or("", |op| argument(op, number))
    }

    /// The operations before it that answered, each with its line.
    fn answered(&self) -> impl Iterator<Item = (&str, &str)> {
        self.before.iter().filter(|line| !line.starts_with(' ')).filter_map(|line| {
            let number: usize = line.split(' ').next()?.parse().ok()?;
            Some((self.ops.get(number)?.as_str(), line.as_str()))
        })
    }
}

/// An argument of an operation.
fn argument(op: &str, number: usize) -> &str {
    op.split(' ').nth(3 + number).unwrap_or_default()
}

/// The mappings of an answer, those joined that lie side by side and are the same otherwise.
fn joined(line: &str) -> Vec<(String, String, String)> {
    let mut all: Vec<(String, String, String)> = Vec::new();
    for mapping in line.split('{').skip(1) {
        let (range, rest) = mapping.trim_end().trim_end_matches('}').split_once(' ').unwrap_or((mapping, ""));
        let (start, end) = range.split_once('-').unwrap_or((range, ""));
        match all.last_mut().filter(|last| last.1 == start && last.2 == rest) {
            Some(last) => last.1 = end.to_owned(),
            None => all.push((start.to_owned(), end.to_owned(), rest.to_owned())),
        }
    }
    all
}

/// The last name on the path by which a descriptor was opened that an operation calls `$N`, or the one that it is a copy of.
fn opened<'a>(ops: &'a [String], descriptor: &str) -> Option<&'a str> {
    let slot = descriptor.strip_prefix('$')?;
    let at = ops.iter().rposition(|op| op.split(' ').nth(1) == Some(slot))?;
    let op = ops[at].as_str();
    match op.split(' ').nth(2)? {
        call if call.starts_with("dup") => opened(&ops[..at], argument(op, 0)),
        call if call.starts_with("open") => op.split('"').nth(1)?.trim_end_matches('/').rsplit('/').next(),
        _ => None,
    }
}

/// How many bytes a write to an eventfd has written by buffers of 8 bytes before it comes to one that is longer; `None` if it does not.
fn before_longer(op: &str) -> Option<u64> {
    let lengths: Vec<u64> = match op.split(' ').nth(2)? {
        "write" => vec![argument(op, 2).parse().ok()?],
        "writev" | "pwritev2" => {
            let vector = op.split_once('[')?.1.split_once(']')?.0;
            let length = |field: &str| field.strip_prefix("8:")?.parse().ok();
            vector.split_whitespace().skip(1).step_by(2).map(length).collect::<Option<_>>()?
        }
        _ => return None,
    };
    let first = *lengths.first()?;
    let mut later = lengths.into_iter().skip(1).filter(|length| *length > 0);
    let mut next = first;
    let mut done = 0;
    while next == 8 {
        (done, next) = (done + 8, later.next()?);
    }
    (next > 8).then_some(done)
}

const RULES: &[Rule] = &[
    // 6.8: eventfd(2) takes writes of 8 bytes only, where it took more.
    // Of a vector each buffer is a write, and the first that is longer ends it.
    ((6, 8), |d| {
        let eventfd = d.ops.iter().any(|op| op.contains(" eventfd2 "));
        let Some(done) = d.ops.last().and_then(|op| before_longer(op)) else { return false };
        match done {
            // One that has no room for what it adds sleeps.
            0 => {
                let sleeps = d.lines[1].ends_with(" sleeps");
                eventfd && d.native == "-22" && (["8", "-14", "-11"].contains(&d.simulated) || sleeps)
            }
            _ => eventfd && d.native == done.to_string() && d.simulated == (done + 8).to_string(),
        }
    }),
    // 6.17: mremap(2) moves several mappings at once, where it failed with EFAULT.
    ((6, 17), |d| d.is(&["mremap"]) && d.simulated == "-14"),
    // And it looks at all of them before it changes anything; before, what lay in its place was gone when it failed, and what became smaller
    // had lost its end.
    ((6, 17), |d| {
        let number = |op: &str, at| argument(op, at).parse::<u64>().unwrap_or(0);
        let cuts = |(op, line): (&str, &str)| {
            line.contains(" mremap = -") && (number(op, 1) > number(op, 2) || number(op, 3) & 2 != 0)
        };
        d.answered().any(cuts)
    }),
    // 6.14: datagrams of unix sockets are copied before their receiver is looked up.
    ((6, 14), |d| {
        d.is(&["write", "writev", "sendto", "sendmsg"]) && d.native == "-14" && d.simulated == "-107"
    }),
    // 6.9: an epoll instance has an ioctl(2) of its own, which refuses what it does not know with EINVAL.
    ((6, 9), |d| {
        let epoll = d.ops.iter().any(|op| op.contains(" epoll_create1 "));
        d.is(&["ioctl"]) && d.native == "-22" && d.simulated == "-25" && epoll
    }),
    // 6.18, some later one: filters of classic BPF for TCP sockets want CAP_NET_ADMIN, before anything else is looked at.
    ((6, 18), |d| {
        let attach = ["1", "26"] == [d.argument(1), d.argument(2)];
        d.is(&["setsockopt"]) && attach && d.native == "-1"
    }),
    // 6.9: sockets that only messages hold are collected by a work of the kernel, in its own time, and not by who closes a socket; so their
    // peers hear of the end later (unix_gc).
    ((6, 9), |d| {
        let passes = |(op, _): (&str, &str)| op.contains(" sendmsg ") && op.contains(" 4:1 4:1 4:$");
        let closes = |(op, _): (&str, &str)| op.contains(" close ");
        d.is(&["poll"]) && d.answered().any(passes) && d.answered().any(closes)
    }),
    // 6.10: signalfd and timerfd read by vectors (read_iter), so preadv2(2) knows its flags for them.
    ((6, 10), |d| {
        d.is(&["preadv2"]) && d.simulated == "-95" && d.ops.iter().any(|op| op.contains(" signalfd4 "))
    }),
    // 6.16: what is anonymous has no mode and no owner to change (anon_inode_setattr).
    ((6, 16), |d| {
        d.is(&["fchmod", "fchown", "fchownat", "utimensat"]) && d.native == "-95" && d.simulated == "0"
    }),
    // 6.9: epoll_wait(2) looks up the descriptor before it looks at its other arguments (ep_check_params).
    ((6, 9), |d| d.is(&["epoll_wait"]) && d.native == "-9" && ["-22", "-14"].contains(&d.simulated)),
    // 6.7: splice(2) asks whether the whole range has a place before it cuts it to the room of the pipe.
    ((6, 7), |d| d.is(&["splice"]) && d.native == "-22" && d.simulated == "0"),
    // 6.5: no bytes are read of anything before it is asked whether it has a function for that (vfs_splice_read).
    ((6, 5), |d| d.is(&["sendfile"]) && d.argument(3) == "0" && d.native == "0" && d.simulated == "-22"),
    // 6.6: F_OFD_GETLK knows F_UNLCK, so the type is looked at after the range.
    ((6, 6), |d| d.is(&["fcntl"]) && d.argument(1) == "36" && d.native == "-75" && d.simulated == "-22"),
    // 6.5: SO_PASSPIDFD and SO_PEERPIDFD.
    ((6, 5), |d| d.is(&["getsockopt", "setsockopt"]) && ["76", "77"].contains(&d.argument(2))),
    // 6.2: data are looked at after the file has grown to where they would begin (shmem_write_end).
    ((6, 2), |d| {
        let write = |line: &String| {
            let words: Vec<&str> = line.split_whitespace().skip(2).take(3).collect();
            matches!(words.as_slice(), [call, "=", "-14"] if call.contains("write"))
        };
        // And a write from a mapping of the file finds what lay behind the end before.
        let maps = d.ops.iter().any(|op| op.contains(" mmap "));
        d.before.iter().any(write) || d.call.contains("write") && d.simulated == "-14" && maps
    }),
    // 6.6: nothing stays set aside for a mapping that can no longer be written and never had a page, so it is joined to one that never
    // could be written (mprotect_fixup).
    ((6, 6), |d| {
        let unwritable = |op: &String| {
            let prot = argument(op, 2).parse::<u64>();
            op.contains(" mprotect ") && prot.is_ok_and(|prot| prot & 2 == 0)
        };
        d.is(&[".maps"]) && d.ops.iter().any(unwritable) && joined(d.lines[0]) == joined(d.lines[1])
    }),
    // Any: a connection to a closed port of loopback is refused before connect(2) returns; here the refusal takes its time.
    ((0, 0), |d| {
        let slot = d.argument(0);
        let begun_by_another =
            |(op, line): (&str, &str)| op.split(' ').nth(2) == Some("connect") && line.ends_with("= -115");
        let begun = |(op, line): (&str, &str)| begun_by_another((op, line)) && argument(op, 0) == slot;
        let copies = d.ops.iter().any(|op| op.split(' ').nth(2).is_some_and(|call| call.starts_with("dup")));
        slot.starts_with('$') && (d.answered().any(begun) || copies && d.answered().any(begun_by_another))
    }),
    // Any: a shared mapping of /dev/zero by a descriptor for reading is, on Linux only, anonymous memory.
    ((0, 0), |d| {
        let is_shared = |op: &String| {
            let flags = argument(op, 3).trim_start_matches("0x");
            op.contains(" mmap ") && u64::from_str_radix(flags, 16).is_ok_and(|flags| flags & 3 == 1)
        };
        let zero = d.ops.iter().any(|op| op.contains("//dev/zero"));
        d.is(&[".maps", ".peek"]) && zero && d.ops.iter().any(is_shared)
    }),
    // Any: who sleeps in accept(2) or in the open(2) of a FIFO has a descriptor already, which other threads see by what numbers they
    // get; here it is chosen when the call ends.
    ((0, 0), |d| {
        let holds = |(op, line): (&str, &str)| {
            line.ends_with(" sleeps")
                && ["accept4", "openat"].contains(&op.split(' ').nth(2).unwrap_or_default())
        };
        d.ops.iter().any(|op| op.contains(" .thread ")) && d.answered().any(holds)
    }),
    // Any: a page of tmpfs that a write has prepared stays, also where none of its data could be read.
    ((0, 0), |d| {
        let cut = |(op, _): (&str, &str)| op.contains("write") && op.contains('|');
        d.is(&["lseek"]) && ["3", "4"].contains(&d.argument(2)) && d.answered().any(cut)
    }),
    // Any: a page of tmpfs is made by the first fault in a mapping of it, also where nothing is stored in the file. Here it stays a hole, as
    // a fault that finds its page mapped already is none.
    ((0, 0), |d| {
        let maps_file =
            |(op, _): (&str, &str)| op.split(' ').nth(2) == Some("mmap") && argument(op, 4) != "-1";
        d.is(&["lseek"]) && ["3", "4"].contains(&d.argument(2)) && d.answered().any(maps_file)
    }),
    // 6.16: a mapping whose pages are of one set is joined with one that has none also where the first one changes.
    ((6, 16), |d| {
        let changes = |op: &String| [" mprotect ", " madvise ", "lock"].iter().any(|call| op.contains(call));
        let fewer = d.lines[0].matches('{').count() < d.lines[1].matches('{').count();
        d.is(&[".maps"]) && fewer && joined(d.lines[0]) == joined(d.lines[1]) && d.ops.iter().any(changes)
    }),
    // Any: what sendfile(2) from a file to itself leaves where the two ranges overlap depends on how the processor copies memory; and so does
    // what a write to a file from a mapping of it leaves.
    ((0, 0), |d| {
        let to_itself = |(op, _): (&str, &str)| {
            let call = op.split(' ').nth(2).unwrap_or_default();
            let [to, from] = [0, 1].map(|number| argument(op, number));
            let same = |from: &str| opened(d.ops, to).is_some_and(|name| opened(d.ops, from) == Some(name));
            let maps = |op: &String| op.split(' ').nth(2) == Some("mmap") && same(argument(op, 4));
            call == "sendfile" && (to == from || same(from))
                || call.contains("write") && op.contains('@') && d.ops.iter().any(maps)
        };
        let [(native, _), (simulated, _)] =
            d.lines.map(|line| line.split_once(" content ").unwrap_or((line, "")));
        let left = d.lines[0].contains(" content ") && native == simulated;
        (left || d.call.contains("read") && d.native == d.simulated) && d.answered().any(to_itself)
    }),
    // Any: who fuzzes as a user has one id only in its namespace, and may not set groups.
    ((0, 0), |d| {
        let ids =
            ["setresuid", "setresgid", "setreuid", "setregid", "setuid", "setgid", "setfsuid", "setfsgid"];
        let refused = d.is(&ids) && d.native == "-22" || d.is(&["setgroups"]) && d.native == "-1";
        refused && d.simulated == "0" && !is_root()
    }),
    // Any: TCP sockets can be mapped for the zero-copy receive that docs/syscalls.md says is refused.
    ((0, 0), |d| {
        let stream = |op: &String| {
            let kind = argument(op, 1).trim_start_matches("0x");
            let kind = u64::from_str_radix(kind, 16).unwrap_or(0) & 0xf;
            op.contains(" socket ") && ["2", "10"].contains(&argument(op, 0)) && kind == 1
        };
        d.is(&["mmap"]) && d.simulated == "-19" && d.ops.iter().any(stream)
    }),
    // Any: who sleeps at a signalfd and a thread that does not block the signal, which it ignores, are woken at the same time, and who is
    // faster takes it.
    ((0, 0), |d| {
        let slot = d.argument(0).trim_start_matches('$');
        let reads = d.ops.iter().any(|op| {
            let mut words = op.split(' ').skip(1);
            words.next() == Some(slot) && words.next() == Some("signalfd4")
        });
        let threads = d.ops.iter().any(|op| op.contains(" .thread "));
        d.is(&["read"]) && reads && threads && d.lines.iter().any(|line| !line.contains(" read = "))
    }),
    // Any: how large a directory is depends on its file system, and so whether a range of a lock that counts from its end begins before its
    // beginning. A regular file has the same size, and says the same.
    ((0, 0), |d| {
        let from_end = d.ops.last().is_some_and(|op| op.contains(" 2:2 4:0 8:"));
        let answers = [d.native, d.simulated];
        d.is(&["fcntl"]) && from_end && (answers == ["-22", "-9"] || answers == ["-9", "-22"])
    }),
];

/// Whether it is root who fuzzes.
fn is_root() -> bool {
    std::fs::metadata("/proc/self").is_ok_and(|own| own.uid() == 0)
}

/// The version of this machine's kernel.
pub fn running() -> (u32, u32) {
    let text = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    let mut numbers = text.split(|c: char| !c.is_ascii_digit()).map(|n| n.parse().unwrap_or(0));
    (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0))
}

/// Whether a newer kernel explains the difference.
pub fn explain(difference: &Difference, kernel: (u32, u32)) -> bool {
    let Some((native, simulated)) = first_difference(&difference.native, &difference.simulated) else {
        return false;
    };
    let at = difference.native.iter().position(|line| line == native).unwrap_or(difference.native.len());
    let mut words = native.split_whitespace();
    // What a handler of signals tells has no number of an operation, and a space instead.
    let number = words.next().filter(|_| !native.starts_with(' ')).and_then(|n| n.parse::<usize>().ok());
    let call = words.nth(1).unwrap_or_default();
    let result = |line: &'_ str| line.split_whitespace().nth(4).unwrap_or_default().to_owned();
    let ops = &difference.case.ops;
    let differing = Differing {
        ops: &ops[..number.map_or(ops.len(), |n| (n + 1).min(ops.len()))],
        call,
        native: &result(native),
        simulated: &result(simulated),
        lines: [native, simulated],
        before: &difference.native[..at],
    };
    RULES.iter().any(|(since, rule)| kernel >= *since && rule(&differing))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::case::Case;

    fn difference(ops: &[&str], native: &[&str], simulated: &[&str]) -> Difference {
        let owned = |lines: &[&str]| lines.iter().map(|line| (*line).to_owned()).collect::<Vec<_>>();
        let case = Case { name: "one".to_owned(), ops: owned(ops) };
        Difference::of(&case, &owned(native), &owned(simulated), "ptrace").expect("a difference")
    }

    #[test]
    fn a_rule_holds_for_its_call_and_its_kernels() {
        let ops = ["0 2 eventfd2 0 0", "0 . write $2 %16:0 16"];
        let longer = difference(
            &ops,
            &["0 0 eventfd2 = 3", "1 0 write = -22"],
            &["0 0 eventfd2 = 3", "1 0 write = 8"],
        );
        assert!(explain(&longer, (6, 8)) && explain(&longer, (7, 0)));
        assert!(!explain(&longer, (6, 7)));
        let full = ["0 2 eventfd2 0 0", "0 . write $2 %16:0 16"];
        let sleeps =
            difference(&full, &["0 0 eventfd2 = 3", "1 0 write = -22"], &["0 0 eventfd2 = 3", "1 0 sleeps"]);
        assert!(explain(&sleeps, (6, 8)) && !explain(&sleeps, (6, 7)));
        let ops = ["0 2 pipe2 <8 0", "0 . write $2 %16:0 16"];
        let pipe =
            difference(&ops, &["0 0 pipe2 = 0", "1 0 write = -22"], &["0 0 pipe2 = 0", "1 0 write = 8"]);
        assert!(!explain(&pipe, (6, 18)));
        let vector = |lengths: &str, native: &str, here: &str| {
            let op = format!("0 . pwritev2 $2 [ {lengths} ] 2 -1 -1 0x0");
            let answers = [native, here].map(|answer| format!("1 0 pwritev2 = {answer}"));
            let made = "0 0 eventfd2 = 3";
            explain(
                &difference(&["0 2 eventfd2 0 0", &op], &[made, &answers[0]], &[made, &answers[1]]),
                (6, 18),
            )
        };
        assert!(vector("*%16:0 8:16 *%8:0 8:8", "-22", "8"));
        assert!(vector("*%8:0 8:8 *%9:0 8:0 *%16:0 8:16", "8", "16"));
        // These are defects: an empty first buffer, and a second one of 8 bytes.
        assert!(!vector("*%4095:0 8:0 *%16:0 8:16", "-22", "8"));
        assert!(!vector("*%8:0 8:8 *%8:0 8:8", "8", "16"));
    }

    #[test]
    fn a_filter_that_needs_a_capability_is_explained() {
        let ops = ["0 0 socket 2 1 0", "0 . setsockopt $0 1 26 [ 2:1 2:0 4:0 *[ 2:6 1:0 1:0 4:0 ] ] 16"];
        let of = |native: &str| {
            let answer = format!("1 0 setsockopt = {native}");
            let [made, here] = ["0 0 socket = 3", "1 0 setsockopt = 0"];
            difference(&ops, &[made, &answer], &[made, here])
        };
        assert!(explain(&of("-1"), (6, 18)) && !explain(&of("-1"), (6, 17)) && !explain(&of("-22"), (6, 18)));
    }

    #[test]
    fn an_end_that_is_heard_later_is_explained_where_sockets_are_passed() {
        let answers =
            |poll: &str| ["0 0 socketpair = 0", "1 0 sendmsg = 0", "2 0 close = 0", poll].map(String::from);
        let (native, here) = (answers("3 0 poll = 0 [0400*7.]"), answers("3 0 poll = 1 [0400*5.1000]"));
        let of = |control: &str| {
            let sends = format!("0 . sendmsg $3 [ *[ {control} ] 8:20 ] 0x0");
            let ops = ["0 2,3 socketpair 1 5 0 <8", &sends, "0 . close $2", "0 . poll [ 4:$3 2:0 2:0 ]? 1 0"];
            let [native, here] = [&native, &here].map(|all| all.each_ref().map(String::as_str));
            difference(&ops, &native, &here)
        };
        let passes = of("8:20 4:1 4:1 4:$2 4:0");
        assert!(explain(&passes, (6, 9)) && !explain(&passes, (6, 8)));
        assert!(!explain(&of("8:20 4:1 4:2 4:7 4:0"), (6, 9)));
    }

    #[test]
    fn a_handler_is_explained_by_what_was_before_it() {
        let ops = [
            "0 . mmap @0x2000 8192 0 0x21 -1 0",
            "0 . mremap @0x2000 8192 4096 3 @0x9000",
            "0 . .poke @0x3000 0",
        ];
        let before = ["0 0 mmap = 1099511635968", "1 0 mremap = -14"];
        let (native, here) = (" 0 handler 11: sig 11 code 2", " 0 handler 11: sig 11 code 1");
        let cut = difference(&ops, &[before[0], before[1], native], &[before[0], before[1], here]);
        assert!(explain(&cut, (6, 17)) && !explain(&cut, (6, 16)));
        let grows = [ops[0], "0 . mremap @0x2000 4096 8192 0 @0x9000", ops[2]];
        let other = difference(&grows, &[before[0], before[1], native], &[before[0], before[1], here]);
        assert!(!explain(&other, (6, 17)));
    }

    #[test]
    fn mappings_that_are_joined_are_explained() {
        let ops = ["0 . mmap @0x2000 1 3 0x22 -1 0", "0 . mprotect @0x2000 4096 0", "0 . .maps"];
        let before = ["0 0 mmap = 1099511635968", "1 0 mprotect = 0"];
        let native = "2 0 .maps = 0 {0x0-0x3000 ---p 00000000}";
        let here = "2 0 .maps = 0 {0x0-0x2000 ---p 00000000} {0x2000-0x3000 ---p 00000000}";
        let apart = difference(&ops, &[before[0], before[1], native], &[before[0], before[1], here]);
        assert!(explain(&apart, (6, 6)) && !explain(&apart, (6, 5)));
        let other = "2 0 .maps = 0 {0x0-0x2000 ---p 00000000} {0x2000-0x3000 r--p 00000000}";
        let other = difference(&ops, &[before[0], before[1], native], &[before[0], before[1], other]);
        assert!(!explain(&other, (6, 6)));
    }

    #[test]
    fn what_a_file_sent_to_itself_holds_is_explained() {
        let ops = ["0 4 openat -100 \"c\" 0x42 0", "0 . sendfile $4 $4 [ 8:0 ]? 25"];
        let before = ["0 0 openat = 3", "1 0 sendfile = 25"];
        let tree = |size: u32, content: &str| {
            format!("tree ./c [ino1 size {size} blocks 8] type 8 content {content}")
        };
        let differing = |ops: &[&str], other: &str| {
            difference(ops, &[before[0], before[1], &tree(26, "61*26.")], &[before[0], before[1], other])
        };
        assert!(explain(&differing(&ops, &tree(26, "616100*14.")), (6, 1)));
        assert!(!explain(&differing(&ops, &tree(25, "61*25.")), (6, 1)));
        let to_another = [ops[0], "0 . sendfile $5 $4 [ 8:0 ]? 25"];
        assert!(!explain(&differing(&to_another, &tree(26, "616100*14.")), (6, 1)));
        let twice =
            [ops[0], "0 5 openat -100 \"./././c\" 0 0", "0 6 dup $4", "0 . sendfile $6 $5 [ 8:0 ]? 25"];
        let of = |ops: &[&str]| {
            let (native, other) = (tree(26, "61*26."), tree(26, "616100*14."));
            let answers = |last| [before[0], "1 0 openat = 4", "2 0 dup = 5", "3 0 sendfile = 25", last];
            difference(ops, &answers(&native), &answers(&other))
        };
        assert!(explain(&of(&twice), (6, 1)), "by other descriptors of it");
        let other_file = [ops[0], "0 5 openat -100 \"./././d\" 0 0", twice[2], twice[3]];
        assert!(!explain(&of(&other_file), (6, 1)));
    }

    #[test]
    fn what_a_write_from_a_mapping_of_the_file_leaves_is_explained() {
        let left = |file: &str, from: &str| {
            let write = format!("0 . write $5 {from} 10000");
            let ops = [
                "0 5 openat -100 \"a\" 0x42 0",
                "0 6 openat -100 \"b\" 0x42 0",
                &format!("0 . mmap @0x0 1 1 1 {file} 0"),
                &write,
            ];
            let tree = |content: &str| format!("tree ./a [ino0 size 4097] type 8 content {content}.");
            let before = ["0 0 openat = 3", "1 0 openat = 4", "2 0 mmap = 1099511627776", "3 0 write = 4096"];
            let [native, here] = [tree("61*4097"), tree("616100*4095")];
            let all = |last: &'_ str| -> Vec<String> {
                before.iter().map(|l| l.to_string()).chain([last.to_owned()]).collect()
            };
            let [native, here] = [all(&native), all(&here)];
            let [native, here] =
                [&native, &here].map(|all| all.iter().map(String::as_str).collect::<Vec<_>>());
            explain(&difference(&ops, &native, &here), (6, 1))
        };
        assert!(left("$5", "@0x0"));
        assert!(!left("$6", "@0x0") && !left("$5", "%10000:0"));
    }

    #[test]
    fn a_lock_from_the_end_of_a_directory_is_explained() {
        let ops = ["0 1 openat -100 \"..\" 0 0", "0 . fcntl $1 37 [ 2:1 2:2 4:0 8:0 8:-4096 4:0 4:0 ]?lock"];
        let lock = |result: i32| format!("1 0 fcntl = {result} [01000200 start 0 length -4096 pid 0]");
        let of = |ops: &[&str], here: i32| {
            difference(ops, &["0 0 openat = 3", &lock(-22)], &["0 0 openat = 3", &lock(here)])
        };
        assert!(explain(&of(&ops, -9), (6, 1)));
        assert!(!explain(&of(&ops, 0), (6, 1)));
        let from_start = [ops[0], "0 . fcntl $1 37 [ 2:1 2:0 4:0 8:0 8:-4096 4:0 4:0 ]?lock"];
        assert!(!explain(&of(&from_start, -9), (6, 1)));
    }

    #[test]
    fn a_file_that_a_failed_write_has_made_longer_is_explained() {
        let ops = ["0 1 memfd_create \"m\" 0", "0 . pwrite64 $1 0 1 9", "0 . fstat $1 <144:stat"];
        let (before, after) =
            (["0 0 memfd_create = 3", "1 0 pwrite64 = -14"], ["2 0 fstat = 0 [9]", "2 0 fstat = 0 [0]"]);
        let grown = difference(&ops, &[before[0], before[1], after[0]], &[before[0], before[1], after[1]]);
        assert!(explain(&grown, (6, 18)) && !explain(&grown, (6, 1)));
        let other = difference(
            &ops,
            &[before[0], "1 0 pwrite64 = 1", after[0]],
            &[before[0], "1 0 pwrite64 = 1", after[1]],
        );
        assert!(!explain(&other, (6, 18)));
    }
}
