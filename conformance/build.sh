#!/bin/sh
# Builds the conformance programs into bin/: bin/static/<name> and bin/dynamic/<name>. With the argument "c", only the
# C programs; the Rust ones need cargo and the network or a filled cargo cache.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
cc=${CC:-gcc}
mkdir -p "$here/bin/static" "$here/bin/dynamic"

for source in "$here"/c/*.c; do
    name=$(basename "$source" .c)
    for kind in dynamic static; do
        binary=$here/bin/$kind/$name
        newer=yes
        for one in "$source" "$here"/c/*.h; do
            [ "$binary" -nt "$one" ] || newer=
        done
        [ -n "$newer" ] && continue
        flags=
        [ $kind = static ] && flags=-static
        # The programs pass wrong arguments on purpose.
        $cc -std=gnu11 -O1 -Wall -Wextra -Wno-stringop-overflow -Wno-stringop-overread -Wno-nonnull -pthread $flags -o "$binary.new.$$" "$source"
        mv "$binary.new.$$" "$binary"
    done
done

[ "${1:-}" = c ] && exit 0
[ -f "$here/rust/Cargo.toml" ] || exit 0

target=${CARGO_TARGET_DIR:-$here/rust/target}
for kind in dynamic static; do
    flags=
    [ $kind = static ] && flags="-C target-feature=+crt-static"
    # With --target, the flags do not reach build scripts, and the two kinds do not overwrite each other.
    RUSTFLAGS=$flags cargo build --release --manifest-path "$here/rust/Cargo.toml" \
        --target x86_64-unknown-linux-gnu --target-dir "$target/$kind"
    for binary in "$target/$kind"/x86_64-unknown-linux-gnu/release/*; do
        [ -f "$binary" ] && [ -x "$binary" ] || continue
        # In one go, and not for nothing: another test may be running the program just now.
        installed=$here/bin/$kind/$(basename "$binary")
        cmp -s "$binary" "$installed" && continue
        cp "$binary" "$installed.new.$$"
        mv "$installed.new.$$" "$installed"
    done
done
