//! The KVM platform: application code in a virtual machine of our own.
//!
//! Key type: [`KvmPlatform`]. One virtual machine with one vCPU for each worker; its physical memory is the frame
//! store, and each address space is a tree of page tables. Application code runs in ring 3. Ring 0 holds nothing but
//! a monitor of a few hundred bytes (`monitor/monitor.S`), which hands every trap to us and makes the changes of page tables
//! that we leave in fixed pages. There is no guest kernel, and no device.
//!
//! Modules: `platform` the trait's implementation, `vm` the virtual machine and the way in and out, `monitor` loads
//! the monitor, `layout` where things lie, `memory` low memory, `tables` page tables, `classify` from exceptions to
//! traps, `software` what only a software KVM reports otherwise, `segments` segment bases, `cpuid` what the vCPU may do, `probe` what KVM can do here, `sys` host calls.
//!
//! Neighbours: `bloodhound-platform` has the trait and what all x86 platforms share.

mod classify;
mod cpuid;
mod layout;
mod memory;
mod monitor;
mod platform;
mod probe;
mod segments;
mod software;
mod sys;
mod tables;
mod vm;

pub use platform::KvmPlatform;
