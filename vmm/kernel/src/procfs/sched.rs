//! What the scheduler tells of tasks: /proc/PID/sched, /proc/PID/autogroup (sched(7)).

use super::View;
use crate::ids::Pid;
use crate::process::Process;
use crate::task::Task;

/// `sched_prio_to_weight`, for nice values from -20 on.
const WEIGHTS: [u64; 40] = [
    88761, 71755, 56483, 46273, 36291, 29154, 23254, 18705, 14949, 11916, 9548, 7620, 6100, 4904, 3906, 3121,
    2501, 1991, 1586, 1277, 1024, 820, 655, 526, 423, 335, 272, 215, 172, 137, 110, 87, 70, 56, 45, 36, 29,
    23, 18, 15,
];
/// SCHED_FIXEDPOINT_SHIFT, by which the weights are finer on 64 bits; that of idle tasks.
const SHIFT: u32 = 10;
const WEIGHT_IDLE: u64 = 3;
const SCHED_IDLE: u32 = 5;

/// /proc/PID/sched (`proc_sched_show_task`). Nothing is averaged, and no task moves: there is one processor.
pub(super) fn sched(
    view: &View<'_>,
    process: &Process,
    task: Option<&Task>,
    number: u32,
    comm: &[u8],
) -> Vec<u8> {
    let mut out = [comm, format!(" ({number}, #threads: {})\n", process.threads.len()).as_bytes()].concat();
    let mut text = format!("{}\n", "-".repeat(67));
    let ran = task.map_or(process.cpu.total, |task| task.cpu.total);
    for (name, ns) in
        [("se.exec_start", view.node.uptime()), ("se.vruntime", ran), ("se.sum_exec_runtime", ran)]
    {
        text += &format!("{name:<45}:{:>14}.{:06}\n", ns / 1_000_000, ns % 1_000_000);
    }
    let policy = task.map_or(0, |task| task.policy & 0xff);
    let nice = task.map_or(process.first.nice, |task| task.nice);
    let weight = match policy {
        SCHED_IDLE => WEIGHT_IDLE,
        _ => WEIGHTS[(nice + 20).clamp(0, 39) as usize],
    };
    // MAX_RT_PRIO - 1 - rt_priority, -1 for a deadline, DEFAULT_PRIO + nice.
    let prio = match task.map_or(0, Task::urgency) {
        0 => 120 + i64::from(nice),
        urgency => 99 - i64::from(urgency),
    };
    let rows = [
        ("se.nr_migrations", 0),
        ("nr_switches", 0),
        ("nr_voluntary_switches", 0),
        ("nr_involuntary_switches", 0),
        ("se.load.weight", (weight << SHIFT) as i64),
        ("se.avg.load_sum", 0),
        ("se.avg.runnable_sum", 0),
        ("se.avg.util_sum", 0),
        ("se.avg.load_avg", 0),
        ("se.avg.runnable_avg", 0),
        ("se.avg.util_avg", 0),
        ("se.avg.last_update_time", view.node.uptime() as i64),
        ("se.avg.util_est.ewma", 0),
        ("se.avg.util_est.enqueued", 0),
        ("policy", i64::from(policy)),
        ("prio", prio),
    ];
    let deadline = if policy == 6 { task.map(|task| task.reserved) } else { None };
    let reserved = deadline
        .map(|[runtime, deadline, _]| [("dl.runtime", runtime as i64), ("dl.deadline", deadline as i64)]);
    for (name, value) in rows.into_iter().chain(reserved.into_iter().flatten()).chain([("clock-delta", 0)]) {
        text += &format!("{name:<45}:{value:>21}\n");
    }
    out.extend_from_slice(text.as_bytes());
    out
}

/// /proc/PID/autogroup: "A new autogroup is created when a new session is created via setsid(2)" (sched(7)). They are counted from 1;
/// here by the sessions' numbers.
pub(super) fn autogroup(process: &Process) -> String {
    let Pid(session) = process.sid;
    format!("/autogroup-{} nice {}\n", session + 1, process.knobs.autogroup_nice)
}
