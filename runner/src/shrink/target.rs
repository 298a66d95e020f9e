//! Which failure is searched for: a run that fails in the same way as the finding ([`crate::group`]).

pub use crate::group::Group as Target;
