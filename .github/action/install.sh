#!/usr/bin/env bash
# First step of action.yml: finds a bloodhound binary, takes the one of a release, or builds one. Output: path.
# Everything comes through the environment: INPUT_BLOODHOUND_PATH, INPUT_BUILD, INPUT_WORKING_DIRECTORY; ACTION_REPOSITORY and
# ACTION_REF (whose action this is, and which version of it; empty for a local one).
set -euo pipefail

fail() {
    # One line, and no text of the user's could be a command: it only follows our own.
    printf '::error title=Bloodhound::%s\n' "$(printf '%s' "$1" | tr '\r\n%' '   ')"
    exit 2
}

# The file in a release (release.yml).
asset=bloodhound-x86_64-linux

build() {
    command -v cargo >/dev/null || fail "there is no bloodhound binary and no cargo to build one; set the input bloodhound-path"
    local target=${RUNNER_TEMP:-/tmp}/bloodhound-target
    echo "::group::Building Bloodhound"
    cargo build --release --package bloodhound --manifest-path "$GITHUB_ACTION_PATH/Cargo.toml" --target-dir "$target"
    echo "::endgroup::"
    binary=$target/release/bloodhound
}

# A file of a release: `fetch TAG NAME TO`. Fails if there is none, or if it cannot be had.
fetch() {
    local url=${GITHUB_SERVER_URL:-https://github.com}/$ACTION_REPOSITORY/releases/download/$1/$2
    curl --fail --silent --show-error --location --proto '=https' --retry 3 --max-time 300 --output "$3" "$url"
}

# The binary of the release that this version of the action is: of the tag, or of the commit that a release was made of.
# False if there is none; a binary that does not match its checksum is an error.
download() {
    local ref=${ACTION_REF:-} tag to
    [ -n "${ACTION_REPOSITORY:-}" ] && [ -n "$ref" ] && [ "$(uname -sm)" = "Linux x86_64" ] || return 1
    command -v curl >/dev/null && command -v sha256sum >/dev/null || return 1
    # Nothing else may become a part of an address.
    [[ $ACTION_REPOSITORY =~ ^[A-Za-z0-9._-]+/[A-Za-z0-9._-]+$ && $ref =~ ^[A-Za-z0-9._-]+$ ]] || return 1
    to=${RUNNER_TEMP:-/tmp}/bloodhound-release
    rm -rf -- "$to"
    mkdir -p -- "$to"
    tag=$ref
    if [[ $ref =~ ^[0-9a-f]{40}$ ]]; then
        tag=v$(sed -n 's/^version = "\([0-9A-Za-z.+-]*\)"$/\1/p' "$GITHUB_ACTION_PATH/Cargo.toml" | head -n 1)
        fetch "$tag" "$asset.commit" "$to/commit" || return 1
        # A release of the same version, but not of this source.
        [ "$(tr -d '[:space:]' < "$to/commit")" = "$ref" ] || return 1
    fi
    fetch "$tag" "$asset.sha256" "$to/$asset.sha256" || return 1
    fetch "$tag" "$asset" "$to/$asset" || return 1
    # Of the checksum file only the sum is used: it names no other file.
    local sum
    sum=$(head -n 1 "$to/$asset.sha256" | cut -c 1-64)
    printf '%s  %s\n' "$sum" "$to/$asset" | sha256sum --check --status - ||
        fail "the binary of release $tag does not match its checksum; set the input build to always to build one instead"
    chmod +x "$to/$asset"
    binary=$to/$asset
    echo "Downloaded the binary of release $tag; its SHA-256 is $sum."
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
        elif download; then
            :
        elif [ "${INPUT_BUILD:-auto}" = never ]; then
            fail "there is no bloodhound in PATH and no release of ${ACTION_REF:-this version}, and the input build is never"
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
