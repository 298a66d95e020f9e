#!/bin/sh
# Builds Bloodhound and the example service, finds a planted bug in it, and replays the finding:
#   examples/run.sh [BUG]      a name from examples/distributed-kv/README.md, stale-read if none is given
# Exit code 0 if the bug was found and the replay was the same run.
set -eu
root=$(cd "$(dirname "$0")/.." && pwd)
bug=${1:-stale-read}
target=${CARGO_TARGET_DIR:-$root/target}
config=$root/examples/distributed-kv/bugs/$bug.yaml
if [ ! -f "$config" ]; then
    echo "there is no planted bug $bug; there are: $(cd "$root/examples/distributed-kv/bugs" && ls | sed -n 's/^\([a-z-]*\)\.yaml$/\1/p' | tr '\n' ' ')" >&2
    exit 2
fi
# A relative directory means the same to cargo and to this script.
cd "$root"
export CARGO_TARGET_DIR="$target"
cargo build --release -p bloodhound
examples/build.sh
bloodhound=$target/release/bloodhound

out=$target/example/$bug
rm -rf "$out"
echo "+ bloodhound test --config examples/distributed-kv/bugs/$bug.yaml --fail-fast"
code=0
"$bloodhound" test --config "$config" --out "$out" --fail-fast || code=$?
if [ $code -ne 1 ]; then
    echo "the planted bug was not found (exit code $code)" >&2
    exit $((code > 0 ? code : 1))
fi
finding=$(ls -d "$out"/findings/* | head -n 1)
echo
echo "+ bloodhound replay $finding"
code=0
"$bloodhound" replay "$finding" || code=$?
if [ $code -ne 1 ]; then
    echo "the finding was not reproduced (exit code $code)" >&2
    exit $((code > 0 ? code : 1))
fi
