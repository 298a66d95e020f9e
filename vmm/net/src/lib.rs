//! The simulated network as plain data: TCP and UDP state machines, links, partitions.
