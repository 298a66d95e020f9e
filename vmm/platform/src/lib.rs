//! The platform trait: how application code is run until it traps.
