//! Comparison of a node with what it was before, for the standing test that a wake-up for nothing changes nothing.

use std::collections::BTreeSet;

use crate::node::Node;

/// Compares the named fields and the remaining ones of [`Node`], all of which must be named: a field that is added to the
/// structure does not compile until it is compared here, or left out on purpose.
macro_rules! compare {
    ($one:ident, $other:ident, [$($field:ident),*], [$($left_out:ident),*]) => {{
        let Node { $($field,)* $($left_out: _),* } = $one;
        let mut differ = Vec::new();
        $(if *$field != $other.$field {
            differ.push(stringify!($field));
        })*
        differ
    }};
}

impl Node {
    /// The names of the fields in which a node differs from what it was before tasks were woken for nothing. Everything that a
    /// call can change is compared, the clock too. Left out are what the node was made with, how often tasks were woken, and in
    /// which order tasks wait for the same thing: one that was woken is the last again.
    pub fn differences(&self, before: &Node) -> Vec<&'static str> {
        let mut differ = compare!(
            self,
            before,
            [
                clock,
                time,
                tasks,
                processes,
                mms,
                files,
                fd_tables,
                places,
                actions,
                vfs,
                net,
                pipes,
                pipe_pages,
                unnamed,
                fifos,
                events,
                timerfds,
                signalfds,
                ptys,
                pts,
                inotifies,
                listeners,
                epolls,
                epoll_watch,
                inet,
                unix,
                netlinks,
                shm,
                memory,
                lines,
                futexes,
                pi_locks,
                sleepers,
                seals,
                timers,
                cpu_alarms,
                run_queue,
                urgent,
                real_time,
                fasync,
                leases,
                dnotify,
                locks,
                console,
                ends,
                injected,
                broken,
                containers,
                next_numbers,
                next_space,
                births,
                watches_added,
                boot_id,
                vvar,
                looks,
                vdso,
                mapped,
                dead_spaces,
                unmapped,
                yielded,
                mqueues,
                sysv
            ],
            [config, woken, waiters]
        );
        let waiting = |node: &Node| -> Vec<_> {
            node.waiters
                .iter()
                .map(|(on, tids)| (*on, tids.iter().copied().collect::<BTreeSet<_>>()))
                .collect()
        };
        if waiting(self) != waiting(before) {
            differ.push("waiters");
        }
        differ
    }
}
