//! The virtual file system: inodes, names, data, mounts and durability as plain data.
