//! The frame store: reference-counted 4 KiB pages over one memfd.
