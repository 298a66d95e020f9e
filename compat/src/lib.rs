//! What a program asks of Linux, read before it is run: from its file ([`elf`]) or from a log of strace(1) ([`strace`]).
//!
//! Key type: [`Request`], a system call with the arguments that decide what is done, and the object that it is done to. Nothing here knows
//! how Bloodhound answers: the runner's `compat` puts the requests to the kernel.

pub mod elf;
pub mod request;
pub mod strace;
pub mod symbols;

pub use request::{Object, Request, Value};
