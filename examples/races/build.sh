#!/bin/sh
# Builds the racy programs of this directory, each as it is and repaired:
#   examples/races/build.sh [OUT]        OUT/NAME and OUT/NAME-fixed; examples/races/bin without OUT
# Those in C++, Rust and Go are left out where there is no compiler for them. CC, CXX and CFLAGS are taken from the environment.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
out=${1:-$here/bin}
mkdir -p "$out"
out=$(cd "$out" && pwd)
cd "$here"
# C and C++ without optimisation, so that each access of the source is one of the program.
flags="${CFLAGS:--g -O0} -Wall -Wextra -pthread"
for source in *.c; do
    ${CC:-cc} $flags -o "$out/${source%.c}" "$source"
    ${CC:-cc} $flags -DFIXED -o "$out/${source%.c}-fixed" "$source"
done
if command -v "${CXX:-c++}" >/dev/null; then
    for source in *.cpp; do
        ${CXX:-c++} $flags -o "$out/${source%.cpp}" "$source"
        ${CXX:-c++} $flags -DFIXED -o "$out/${source%.cpp}-fixed" "$source"
    done
fi
if command -v rustc >/dev/null; then
    for source in *.rs; do
        rustc -g -O --check-cfg 'cfg(fixed)' -o "$out/${source%.rs}" "$source"
        rustc -g -O --check-cfg 'cfg(fixed)' --cfg fixed -o "$out/${source%.rs}-fixed" "$source"
    done
fi
if command -v go >/dev/null; then
    for source in *.go; do
        go build -o "$out/${source%.go}" "$source"
        go build -ldflags=-X=main.variant=fixed -o "$out/${source%.go}-fixed" "$source"
    done
fi
