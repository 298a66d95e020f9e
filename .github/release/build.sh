#!/usr/bin/env bash
# Builds what release.yml attaches to a release, into a directory: the binary, its SHA-256, and the commit that it is made of.
# Linked statically with glibc, so that it runs on any x86-64 Linux; the C compiler that links it assembles the monitor of the
# KVM platform as well. TAG and COMMIT come through the environment; without TAG the version is not compared.
set -euo pipefail
cd "$(dirname "$0")/../.."
out=${1:?a directory}
target=x86_64-unknown-linux-gnu
name=bloodhound-x86_64-linux

version=$(sed -n 's/^version = "\(.*\)"$/\1/p' Cargo.toml | head -n 1)
if [ -n "${TAG:-}" ] && [ "$TAG" != "v$version" ]; then
    echo "the tag is $TAG, and the version in Cargo.toml is $version" >&2
    exit 2
fi

# With a target of its own the flag is not for build scripts and procedural macros, which are loaded dynamically.
export RUSTFLAGS="-C target-feature=+crt-static"
cargo build --release --locked --package bloodhound --target "$target"
mkdir -p "$out"
install -m 755 "${CARGO_TARGET_DIR:-target}/$target/release/bloodhound" "$out/$name"

# What a user does with it first. A program that asks for an interpreter is not static.
if readelf --program-headers --wide "$out/$name" | grep -q INTERP; then
    echo "$out/$name is not static" >&2
    exit 1
fi
"$out/$name" --version
"$out/$name" exec --platform ptrace -- /bin/echo "it runs programs"

(cd "$out" && sha256sum "$name" > "$name.sha256")
printf '%s\n' "${COMMIT:-$(git rev-parse HEAD)}" > "$out/$name.commit"
