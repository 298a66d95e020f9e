//! The Linux x86-64 application binary interface as data: error numbers, constants, structures, the
//! system-call table, and virtual time. Everything here is pure; neighbours are `net` and `kernel`, which give
//! it behaviour.

pub mod consts;
pub mod errno;
pub mod names;
pub mod regs;
pub mod structs;
pub mod table;
pub mod time;

pub use errno::Errno;
pub use regs::Regs;
pub use time::SimTime;
