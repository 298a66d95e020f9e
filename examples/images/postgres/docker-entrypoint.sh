#!/usr/bin/env bash
# Makes the database cluster when its directory is empty, runs what lies in /docker-entrypoint-initdb.d, and becomes the server.
# Variables, each also as NAME_FILE: POSTGRES_PASSWORD, POSTGRES_USER, POSTGRES_DB, POSTGRES_INITDB_ARGS.
set -Eeuo pipefail

from_file() {
    local name=$1 file=${1}_FILE default=${2:-}
    if [ -n "${!file:-}" ]; then
        export "$name"="$(<"${!file}")"
    else
        export "$name"="${!name:-$default}"
    fi
    unset "$file"
}

run_initdb_files() {
    local file
    for file in /docker-entrypoint-initdb.d/*; do
        case "$file" in
        *.sh) if [ -x "$file" ]; then "$file"; else . "$file"; fi ;;
        *.sql) "${psql[@]}" -f "$file" ;;
        *.sql.gz) gunzip -c "$file" | "${psql[@]}" ;;
        esac
    done
}

if [ "${1:0:1}" = - ]; then set -- postgres "$@"; fi
if [ "$1" = postgres ] && [ "$(id -u)" = 0 ]; then
    mkdir -p "$PGDATA"
    chmod 700 "$PGDATA"
    find "$PGDATA" ! -user postgres -exec chown postgres '{}' +
    exec setpriv --reuid postgres --regid postgres --init-groups "$BASH_SOURCE" "$@"
fi
if [ "$1" = postgres ] && [ ! -s "$PGDATA/PG_VERSION" ]; then
    from_file POSTGRES_PASSWORD
    from_file POSTGRES_USER postgres
    from_file POSTGRES_DB "$POSTGRES_USER"
    if [ -z "$POSTGRES_PASSWORD" ] && [ "${POSTGRES_HOST_AUTH_METHOD:-}" != trust ]; then
        echo "the database is not initialised and POSTGRES_PASSWORD is not set" >&2
        exit 1
    fi
    initdb --username="$POSTGRES_USER" --pwfile=<(printf '%s\n' "$POSTGRES_PASSWORD") ${POSTGRES_INITDB_ARGS:-}
    printf '\nhost all all all %s\n' "${POSTGRES_HOST_AUTH_METHOD:-scram-sha-256}" >>"$PGDATA/pg_hba.conf"
    export PGPASSWORD=$POSTGRES_PASSWORD
    pg_ctl -D "$PGDATA" -o "-c listen_addresses='' -p 5432" -w start
    psql=(psql -v ON_ERROR_STOP=1 --no-psqlrc --username "$POSTGRES_USER" --dbname postgres)
    if [ "$POSTGRES_DB" != postgres ]; then
        "${psql[@]}" --set db="$POSTGRES_DB" <<<'CREATE DATABASE :"db";'
    fi
    psql=(psql -v ON_ERROR_STOP=1 --no-psqlrc --username "$POSTGRES_USER" --dbname "$POSTGRES_DB")
    run_initdb_files
    pg_ctl -D "$PGDATA" -m fast -w stop
    unset PGPASSWORD
    echo "PostgreSQL init process complete; ready for start up."
fi
if [ "$1" = postgres ]; then set -- "$@" -c "listen_addresses=*"; fi
exec "$@"
