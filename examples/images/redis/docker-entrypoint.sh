#!/bin/sh
# Starts redis-server as the user redis, with options if the first word is one.
set -e
case "${1:-}" in
-* | *.conf) set -- redis-server "$@" ;;
esac
if [ "$1" = redis-server ] && [ "$(id -u)" = 0 ]; then
    find . ! -user redis -exec chown redis '{}' +
    exec setpriv --reuid redis --regid redis --init-groups "$0" "$@"
fi
if [ "$1" = redis-server ]; then
    set -- "$@" --protected-mode no
fi
exec "$@"
