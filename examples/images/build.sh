#!/usr/bin/env bash
# Builds container images with the tools of Debian (mmdebstrap, buildah) and saves them as `docker save` does:
#   examples/images/build.sh DIRECTORY [IMAGE...]
# Without names all of them. Images that are there already are kept. Needs root, and Debian's packages from the network.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
out=$(mkdir -p "${1:?a directory}" && cd "$1" && pwd)
shift
declare -A tags=(
    [redis]=redis:7 [postgres]=postgres:15 [nginx]=nginx:1 [python-web]=shop/web:1.0 [node-web]=shop/front:1.0
    [java-web]=shop/store:1.0 [musl]=musl:1 [php]=guestbook/php:1.0 [mariadb]=mariadb:10 [nats]=nats:2
)
order=(musl redis postgres nginx python-web node-web java-web php mariadb nats)
[ $# -gt 0 ] || set -- "${order[@]}"
# Neither a daemon nor an overlay file system: chroot and copies work in a container too.
export BUILDAH_ISOLATION=chroot STORAGE_DRIVER=vfs
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
buildah=(buildah --root "$out/.storage" --runroot "$work/run")

context() {
    cp -r "$here/$1" "$work/$1"
    case $1 in
    musl)
        mkdir -p "$work/musl/rootfs"/{bin,etc,tmp,usr/bin,proc,sys,dev,root}
        cp "$(command -v busybox)" "$work/musl/rootfs/bin/busybox"
        for applet in $("$work/musl/rootfs/bin/busybox" --list); do
            [ -e "$work/musl/rootfs/bin/$applet" ] || ln -s busybox "$work/musl/rootfs/bin/$applet"
        done
        echo 'root:x:0:0:root:/root:/bin/sh' >"$work/musl/rootfs/etc/passwd"
        echo 'root:x:0:' >"$work/musl/rootfs/etc/group"
        chmod 1777 "$work/musl/rootfs/tmp"
        musl-gcc -O2 -static -o "$work/musl/rootfs/usr/bin/echod" "$here/musl/echod.c"
        ;;
    java-web)
        javac --release 17 -d "$work/java-web/classes" "$here/java-web/Web.java"
        ;;
    esac
}

base() {
    if "${buildah[@]}" inspect --type image debian:bookworm-slim >/dev/null 2>&1; then return; fi
    echo "+ mmdebstrap"
    cp -r "$here/debian" "$work/debian"
    mmdebstrap --quiet --variant=minbase --include=ca-certificates bookworm "$work/debian/rootfs.tar" http://deb.debian.org/debian
    "${buildah[@]}" bud -q -t debian:bookworm-slim "$work/debian"
    rm -r "$work/debian"
}

for name in "$@"; do
    if [ -e "$out/$name.tar" ]; then continue; fi
    tag=${tags[$name]:?there is no image $name; there are: ${order[*]}}
    [ "$name" = musl ] || base
    echo "+ $name"
    context "$name"
    "${buildah[@]}" bud -q -t "$tag" "$work/$name"
    "${buildah[@]}" push -q "$tag" "docker-archive:$work/$name.tar:$tag"
    mv "$work/$name.tar" "$out/$name.tar"
    # The storage has a whole copy of every layer.
    "${buildah[@]}" rmi -f "$tag" >/dev/null
    rm -r "${work:?}/$name"
done
rm -rf "$out/.storage"
