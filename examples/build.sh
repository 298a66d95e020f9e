#!/bin/sh
# Builds the examples' services and puts each binary where its docker-compose.yml expects it.
# Set RUSTFLAGS="-C target-feature=+crt-static" for a static one.
set -eu
examples=$(cd "$(dirname "$0")" && pwd)
target=${CARGO_TARGET_DIR:-$examples/../target}
for name in distributed-kv; do
    cargo build --release --manifest-path "$examples/../Cargo.toml" --target-dir "$target" -p "$name"
    mkdir -p "$examples/$name/bin"
    # A new file, so that a binary in use is replaced, not written to.
    cp "$target/release/$name" "$examples/$name/bin/$name.new"
    mv "$examples/$name/bin/$name.new" "$examples/$name/bin/$name"
done
