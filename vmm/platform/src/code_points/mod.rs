//! Code points: instructions of unmodified programs at which a run stops, or of which it is known that they were reached.
//!
//! *Observing* points ([`FilePoints`]) say which instructions of a file were executed by any process of any world; code coverage is
//! made of them. They lie outside of the simulated world: a point takes no virtual time, is no step, and nothing of a world
//! depends on it. A point is an `int3` in the frame that is shown in the place of a page of the file ([`Observed`]); it is removed by
//! one store when the first task comes there, for all worlds of the process, and the task goes on as if nothing had been there.
//! So each point costs one trap, once.
//!
//! *Stop points* ([`crate::Stops::points`]) end the run of a task when it has come by often enough. They are chosen by the world's
//! state, so runs that are equal stop at the same places.
//!
//! *Kept* points ([`WithCodePoints::keep`]) are observing points that stay: a run comes back at each of them, and whoever asked for the run looks and
//! goes on with it. Breakpoints are made of them. They stand in the copies that stop points stand in, so other workers never see them, nor see
//! them lifted while a task passes.
//!
//! A stop point traps at each pass. One that is passed often is counted at native speed instead, by code of ours that the program jumps to
//! (`counter`); what it counts is the same.
//!
//! [`WithCodePoints`], a platform around another one, carries both out.
//!
//! Neighbours: `code_view` shows pages of files with what must trap; `bloodhound-sim` asks for the points of a file that is about
//! to be executed, and chooses stop points; the runner says which instructions are observed, and what they mean.

mod counter;
mod counting;
mod observed;
mod stops;
mod with_points;

pub use counter::{COUNTABLE, STRAIGHT, countable};
pub use observed::{FilePoints, Mark, Observed, PageOfFile, Reached};
pub use with_points::WithCodePoints;

#[cfg(test)]
mod tests;
