//! The ptrace platform: application code in stub processes under PTRACE_SYSEMU.
//!
//! Key type: [`PtracePlatform`]. One stub process per address space; its memory shows frames of the arena and
//! nothing else, but for five pages of our own above `GUEST_TOP`. Application code runs natively until it makes a system
//! call (which PTRACE_SYSEMU keeps from the host's kernel) or faults. Mappings change by commands that code in
//! the stub carries out, many in one round trip. A seccomp filter in the stub is the second wall: it allows
//! mmap, munmap and mprotect from that code and kills the process for anything else.
//!
//! Modules: `platform` the trait's implementation, `classify` from stops to traps, `process` stub processes,
//! `stub` their contents, `tsc` the tracer's own clock, `sys` host calls. Page tables, decoding
//! and loops without side effects are `bloodhound_platform`'s.
//!
//! What application code can see of the host, since nothing makes it trap: instructions that `cpuid` does not offer
//! (`rdrand`, `rdseed`, `rdpid`, AVX-512, `wrfsbase` and the like), `xgetbv`, the number of the processor by `lsl` of
//! selector 0x7b, `sgdt` and its kin where the processor has no UMIP. It can read the stub's pages, which hold the same in
//! every stub while it runs. An `int 4` right before an `rdtsc` passes for the `rdtsc`.
//!
//! Stubs are traced by the thread that made the platform, and die with it.

mod classify;
mod platform;
mod process;
mod stub;
mod sys;
mod tsc;

pub use platform::PtracePlatform;
pub use tsc::with_host_clock;

#[cfg(test)]
mod tests;
