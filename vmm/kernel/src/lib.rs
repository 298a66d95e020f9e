//! The application kernel: Linux's system calls as a deterministic state machine.
