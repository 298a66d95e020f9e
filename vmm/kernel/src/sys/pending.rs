//! Calls that are not written yet.

use crate::ctx::*;
use crate::wait::{Stop, SysResult};

macro_rules! pending { ($($name:ident($($t:ty),*);)*) => { $(pub fn $name(_k: &mut Ctx<'_> $(, _: $t)*) -> SysResult { Err(Stop::Unsupported(String::from("not written yet"))) })* } }

pending! {}
