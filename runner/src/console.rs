//! Output of services as lines: programs write them in pieces (`touch: `, `cannot touch`, ...), and several at once.

use std::collections::BTreeMap;

use bloodhound_abi::SimTime;
use bloodhound_kernel::ids::Pid;
use bloodhound_kernel::node::ConsoleChunk;
use bloodhound_net::NodeId;
use bloodhound_sim::console::{self, ConsoleLog, Piece};
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
    /// Where in the order of all pieces it was last added to.
    index: usize,
    check: bool,
    bytes: Vec<u8>,
}

/// When services started, each in order.
type Starts = BTreeMap<NodeId, Vec<SimTime>>;

/// The lines of what was written, each from one stream of one process. What is left without a line's end is a line of its own
/// when its service starts again (with the same process ids), where output is left out, or when all is over.
pub fn lines(kept: &ConsoleLog, log: &[LogEntry]) -> Vec<Line> {
    let mut starts = Starts::new();
    for entry in log.iter().filter(|e| e.what == Notice::Service(ServiceChange::Started)) {
        if let Some(node) = entry.node {
            starts.entry(node).or_default().push(entry.at);
        }
    }
    let mut done: Vec<(usize, Line)> = Vec::new();
    let mut parts: BTreeMap<(NodeId, Pid, u8), Part> = BTreeMap::new();
    for (index, (node, piece)) in kept.pieces().into_iter().enumerate() {
        match piece {
            Piece::Chunk(chunk) => add(&mut parts, &mut done, index, (node, chunk), &starts),
            Piece::LeftOut { at, bytes } => {
                let cut: Vec<_> = parts.extract_if(.., |(of, ..), _| *of == node).collect();
                done.extend(cut.into_iter().map(|(_, part)| line(node, part)));
                let text = format!(
                    "[{bytes} bytes of output are not kept: of each service about the first {} MiB and the last {} MiB are]",
                    console::FIRST >> 20,
                    console::LAST >> 20
                );
                done.push((index, Line { at, node, check: false, text }));
            }
        }
    }
    done.extend(parts.into_iter().map(|((node, ..), part)| line(node, part)));
    done.sort_by_key(|(index, _)| *index);
    done.into_iter().map(|(_, line)| line).collect()
}

/// Adds a chunk to what its process has written of a line; lines that are whole now are done.
fn add(
    parts: &mut BTreeMap<(NodeId, Pid, u8), Part>,
    done: &mut Vec<(usize, Line)>,
    index: usize,
    (node, chunk): (NodeId, &ConsoleChunk),
    starts: &Starts,
) {
    let key = (node, chunk.pid, chunk.stream as u8);
    if let Some(part) = parts.get(&key)
        && started_between(starts, node, part.at, chunk.at)
    {
        done.extend(parts.remove(&key).map(|part| line(node, part)));
    }
    let before = parts.remove(&key).map_or_else(Vec::new, |part| part.bytes);
    let bytes = if before.is_empty() { chunk.bytes.clone() } else { [before, chunk.bytes.clone()].concat() };
    let mut rest = &bytes[..];
    while let Some((end, next)) = cut(rest) {
        let bytes = rest[..end].to_vec();
        done.push(line(node, Part { at: chunk.at, index, check: chunk.check, bytes }));
        rest = &rest[next..];
    }
    if !rest.is_empty() {
        parts.insert(key, Part { at: chunk.at, index, check: chunk.check, bytes: rest.to_vec() });
    }
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

fn started_between(starts: &Starts, node: NodeId, first: SimTime, last: SimTime) -> bool {
    let Some(starts) = starts.get(&node) else { return false };
    let after = starts.partition_point(|at| *at <= first);
    starts.get(after).is_some_and(|at| *at <= last)
}

#[cfg(test)]
mod tests {
    use bloodhound_kernel::file::Console;

    use super::*;

    fn chunk(at: u64, node: u32, pid: u32, text: &str) -> ConsoleChunk {
        let (stream, bytes) = (Console::Out, text.as_bytes().to_vec());
        ConsoleChunk { at: SimTime(at), container: NodeId(node), pid: Pid(pid), stream, check: false, bytes }
    }

    fn shown(chunks: &[ConsoleChunk], log: &[LogEntry]) -> Vec<(u64, u32, String)> {
        let mut kept = ConsoleLog::default();
        chunks.iter().for_each(|chunk| kept.push(chunk.clone()));
        lines(&kept, log).into_iter().map(|l| (l.at.0, l.node.0, l.text)).collect()
    }

    #[test]
    fn pieces_of_a_line_are_put_together_by_process_and_stream() {
        let mut error = chunk(3, 1, 1, "oops\n");
        error.stream = Console::Err;
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

    #[test]
    fn what_is_left_out_is_told_in_its_place() {
        let mut chunks = vec![chunk(0, 1, 1, "the beginning\nhalf a li")];
        let numbered = |at: u64| chunk(at, 1, 1, &format!("{at:0>64}\n").repeat(100));
        chunks.extend((1..2000).map(numbered));
        chunks.push(chunk(2000, 1, 1, "the end\n"));
        let told = shown(&chunks, &[]);
        assert_eq!(told[0].2, "the beginning");
        assert_eq!(told.last().expect("lines").2, "the end");
        let gaps: Vec<usize> = (0..told.len()).filter(|i| told[*i].2.contains("are not kept")).collect();
        let [gap] = gaps[..] else { panic!("{gaps:?}") };
        let left_out: usize =
            told[gap].2[1..].split(' ').next().expect("a number").parse().expect("a number");
        let bytes: usize = told.iter().map(|line| line.2.len() + 1).sum();
        let all: usize = chunks.iter().map(|chunk| chunk.bytes.len()).sum();
        assert_eq!(bytes - told[gap].2.len() - 1 + left_out, all);
    }
}
