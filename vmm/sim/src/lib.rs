//! World, event queue, faults, snapshots, the machine loop and the trace digest.
