//! Output of services as lines: programs write them in pieces (`touch: `, `cannot touch`, ...), and several at once.

use std::collections::BTreeMap;

use bloodhound_abi::SimTime;
use bloodhound_kernel::ids::Pid;
use bloodhound_kernel::node::ConsoleChunk;
use bloodhound_net::NodeId;
use bloodhound_sim::notice::{LogEntry, Notice};
use bloodhound_sim::services::ServiceChange;

/// A longer line is cut: binary data has none.
const LONGEST: usize = 4096;

/// A line of output, at the time at which it was whole: nothing in it was written later.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Line {
    /// When.
    pub at: SimTime,
    /// Which service.
    pub node: NodeId,
    /// A health check wrote it: an engine keeps that apart from the service's output.
    pub check: bool,
    /// Without the line's end.
    pub text: String,
}

/// What a process has written of a line.
struct Part {
    at: SimTime,
    /// Where in the order of all chunks it was last added to.
    index: usize,
    check: bool,
    bytes: Vec<u8>,
}

/// The lines of what was written, each from one stream of one process. What is left without a line's end is a line of its own
/// when its service starts again (with the same process ids), or all is over.
pub fn lines(chunks: &[(NodeId, ConsoleChunk)], log: &[LogEntry]) -> Vec<Line> {
    let mut done: Vec<(usize, Line)> = Vec::new();
    let mut parts: BTreeMap<(NodeId, Pid, u8), Part> = BTreeMap::new();
    for (index, (node, chunk)) in chunks.iter().enumerate() {
        let key = (*node, chunk.pid, chunk.stream as u8);
        if let Some(part) = parts.get(&key)
            && started_between(log, *node, part.at, chunk.at)
        {
            done.extend(parts.remove(&key).map(|part| line(*node, part)));
        }
        let part =
            parts.entry(key).or_insert(Part { at: chunk.at, index, check: chunk.check, bytes: Vec::new() });
        (part.at, part.index) = (chunk.at, index);
        part.bytes.extend_from_slice(&chunk.bytes);
        while let Some((end, next)) = cut(&part.bytes) {
            let rest = part.bytes.split_off(next);
            part.bytes.truncate(end);
            let bytes = std::mem::replace(&mut part.bytes, rest);
            done.push(line(*node, Part { at: part.at, index, check: part.check, bytes }));
        }
        if part.bytes.is_empty() {
            parts.remove(&key);
        }
    }
    done.extend(parts.into_iter().map(|((node, ..), part)| line(node, part)));
    done.sort_by_key(|(index, _)| *index);
    done.into_iter().map(|(_, line)| line).collect()
}

/// Where the first line ends, and where the next one begins.
fn cut(bytes: &[u8]) -> Option<(usize, usize)> {
    match bytes.iter().take(LONGEST + 1).position(|b| *b == b'\n') {
        Some(end) => Some((end, end + 1)),
        None if bytes.len() > LONGEST => Some((LONGEST, LONGEST)),
        None => None,
    }
}

fn line(node: NodeId, part: Part) -> (usize, Line) {
    let text = String::from_utf8_lossy(&part.bytes);
    let text = text.strip_suffix('\r').unwrap_or(&text).to_owned();
    (part.index, Line { at: part.at, node, check: part.check, text })
}

fn started_between(log: &[LogEntry], node: NodeId, first: SimTime, last: SimTime) -> bool {
    let started = |e: &LogEntry| e.what == Notice::Service(ServiceChange::Started);
    log.iter().any(|e| e.node == Some(node) && first < e.at && e.at <= last && started(e))
}

#[cfg(test)]
mod tests {
    use bloodhound_kernel::file::Console;

    use super::*;

    fn chunk(at: u64, node: u32, pid: u32, text: &str) -> (NodeId, ConsoleChunk) {
        let (stream, bytes) = (Console::Out, text.as_bytes().to_vec());
        (
            NodeId(node),
            ConsoleChunk {
                at: SimTime(at),
                container: NodeId(node),
                pid: Pid(pid),
                stream,
                check: false,
                bytes,
            },
        )
    }

    fn shown(chunks: &[(NodeId, ConsoleChunk)], log: &[LogEntry]) -> Vec<(u64, u32, String)> {
        lines(chunks, log).into_iter().map(|l| (l.at.0, l.node.0, l.text)).collect()
    }

    #[test]
    fn pieces_of_a_line_are_put_together_by_process_and_stream() {
        let mut error = chunk(3, 1, 1, "oops\n");
        error.1.stream = Console::Err;
        let chunks = [
            chunk(1, 1, 1, "touch: "),
            chunk(2, 1, 2, "other"),
            error,
            chunk(4, 1, 1, "cannot touch\r\nsecond\nthi"),
            chunk(5, 2, 1, "\n"),
            chunk(6, 1, 1, "rd"),
        ];
        let want = [
            (2, 1, "other".to_owned()),
            (3, 1, "oops".into()),
            (4, 1, "touch: cannot touch".into()),
            (4, 1, "second".into()),
            (5, 2, String::new()),
            (6, 1, "third".into()),
        ];
        assert_eq!(shown(&chunks, &[]), want);
    }

    #[test]
    fn a_service_that_starts_again_begins_a_line() {
        let started =
            LogEntry { at: SimTime(5), node: Some(NodeId(1)), what: Notice::Service(ServiceChange::Started) };
        let chunks = [chunk(1, 1, 1, "half"), chunk(9, 1, 1, "new\n")];
        let want = [(1, 1, "half".to_owned()), (9, 1, "new".into())];
        assert_eq!(shown(&chunks, std::slice::from_ref(&started)), want);
        assert_eq!(shown(&chunks, &[]), [(9, 1, "halfnew".to_owned())]);
        let other = LogEntry { node: Some(NodeId(2)), ..started };
        assert_eq!(shown(&chunks, &[other]).len(), 1);
    }

    #[test]
    fn endless_lines_are_cut() {
        let long = "x".repeat(2 * LONGEST + 1) + "\n";
        let lengths: Vec<usize> = shown(&[chunk(1, 1, 1, &long)], &[]).iter().map(|l| l.2.len()).collect();
        assert_eq!(lengths, [LONGEST, LONGEST, 1]);
        let exact = "x".repeat(LONGEST) + "\n";
        assert_eq!(shown(&[chunk(1, 1, 1, &exact)], &[]).len(), 1);
    }
}
