//! The system calls, a module per subject. Every function has the name of its call and the arguments of the table's
//! line; it checks everything, then blocks, then changes. A call that may block looks its descriptors up with
//! [`crate::ctx::Ctx::pin`], reads memory of the program before its first sleep only, and keeps the rest in a
//! [`crate::wait::Progress`].

mod attr;
mod caps;
mod descriptor;
mod dir;
mod exec;
mod futex;
mod ids;
mod io;
mod ioctl;
mod link;
mod lock;
mod memory;
mod message;
pub mod misc;
mod netdevice;
mod open;
mod poll;
mod prctl;
mod priority;
mod probe;
mod process;
mod sched;
mod seal;
mod sendfile;
mod session;
mod shm;
mod signals;
pub(crate) mod socket;
mod sockopt;
mod stat;
mod statfs;
mod storage;
mod time;
#[cfg(test)]
mod unknown;
mod xattr;

pub use attr::*;
pub use caps::{capget, capset};
pub use descriptor::*;
pub use dir::*;
pub use exec::*;
pub use futex::*;
pub use ids::*;
pub use io::*;
pub use ioctl::ioctl;
pub use link::*;
pub use lock::*;
pub use memory::*;
pub use message::*;
pub use misc::*;
pub use open::*;
pub use poll::*;
pub use prctl::*;
pub use priority::*;
pub use probe::*;
pub use process::*;
pub use sched::*;
pub use sendfile::*;
pub use session::*;
pub use shm::*;
pub use signals::*;
pub use socket::*;
pub use sockopt::*;
pub use stat::*;
pub use statfs::*;
pub use storage::*;
pub use time::*;
pub use xattr::*;
