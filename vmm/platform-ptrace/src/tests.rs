//! Tests inside the crate: the second wall, reached by faking a bug of the first.
