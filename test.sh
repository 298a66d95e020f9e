#!/bin/sh
# Runs every test: the workspace's, with the example service and the conformance programs under simulation, and the
# example's own.
set -eu
cd "$(dirname "$0")"
examples/build.sh
cargo test --release --workspace --no-fail-fast
