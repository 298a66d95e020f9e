#!/usr/bin/env bash
# First step of action.yml: finds a bloodhound binary or builds one. Output: path.
# Everything comes through the environment: INPUT_BLOODHOUND_PATH, INPUT_BUILD, INPUT_WORKING_DIRECTORY.
set -euo pipefail

fail() {
    # One line, and no text of the user's could be a command: it only follows our own.
    printf '::error title=Bloodhound::%s\n' "$(printf '%s' "$1" | tr '\r\n%' '   ')"
    exit 2
}

build() {
    command -v cargo >/dev/null || fail "there is no bloodhound binary and no cargo to build one; set the input bloodhound-path"
    local target=${RUNNER_TEMP:-/tmp}/bloodhound-target
    echo "::group::Building Bloodhound"
    cargo build --release --package bloodhound --manifest-path "$GITHUB_ACTION_PATH/Cargo.toml" --target-dir "$target"
    echo "::endgroup::"
    binary=$target/release/bloodhound
}

binary=
case ${INPUT_BUILD:-auto} in
    always) build ;;
    auto | never)
        if [ -n "${INPUT_BLOODHOUND_PATH:-}" ]; then
            cd "${INPUT_WORKING_DIRECTORY:-.}" || fail "there is no directory ${INPUT_WORKING_DIRECTORY}"
            binary=$(realpath -- "$INPUT_BLOODHOUND_PATH" 2>/dev/null) || fail "there is no file $INPUT_BLOODHOUND_PATH"
        elif found=$(command -v bloodhound); then
            binary=$found
        elif [ "${INPUT_BUILD:-auto}" = never ]; then
            fail "there is no bloodhound in PATH, and the input build is never"
        else
            build
        fi
        ;;
    *) fail "the input build is ${INPUT_BUILD}; auto, always and never are known" ;;
esac

[ -x "$binary" ] || fail "$binary is not a program"
version=$("$binary" --version) || fail "$binary does not run"
printf 'Using %s: %s\n' "$binary" "$version"
case $binary in
    *$'\n'*) fail "the path of the binary has a line break" ;;
esac
printf 'path=%s\n' "$binary" >> "$GITHUB_OUTPUT"
