//! Tasks with policies of real time (sched(7)), which go before all others of their node: no choice of a run is about them.

use bloodhound_kernel::ids::Tid;
use bloodhound_kernel::node::Node;

use super::{Turn, next_of_queue};

/// How many steps of a task are one turn where others of its priority could run: one with SCHED_RR, or one without a policy of real time in
/// the time that is reserved for those.
const ROUND: u64 = 64;

/// The turn of a node of which runnable tasks have such policies. "The scheduler [...] determines which runnable thread will be
/// executed next" by looking "for the nonempty list with the highest static priority"; "a SCHED_FIFO thread runs until either it is
/// blocked by an I/O request, it is preempted by a higher priority thread, or it calls sched_yield(2)".
pub(super) fn turn(node: &Node, before: &Turn, yielded: bool) -> Option<Turn> {
    let urgency = |tid: &Tid| node.tasks.get(tid).map_or(0, |task| task.urgency());
    let highest = node.run_queue.iter().map(urgency).max().filter(|highest| *highest > 0)?;
    let of = |wanted: u32| {
        node.run_queue.iter().copied().filter(|tid| urgency(tid) == wanted).collect::<Vec<Tid>>()
    };
    let others: Vec<Tid> = if node.real_time.is_used_up(node.clock) { of(0) } else { Vec::new() };
    let reserved = !others.is_empty();
    let queue = if reserved { others } else { of(highest) };
    let takes_turns = |tid: &Tid| reserved || node.tasks.get(tid).is_some_and(|task| task.round_robin());
    let over = before.left == 0 && before.task.is_some_and(|tid| takes_turns(&tid));
    let task = next_of_queue(&queue, before.task, yielded || over);
    let left = if before.task == Some(task) && !over { before.left.saturating_sub(1) } else { ROUND };
    Some(Turn { task: Some(task), left, fresh: before.fresh, ..Turn::default() })
}
