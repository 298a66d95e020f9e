#!/bin/bash
# Makes the database when its directory is empty, with the user and the database that the variables name, and becomes the server.
set -eo pipefail
if [ "${1:0:1}" = - ]; then set -- mariadbd "$@"; fi
if [ "$1" = mariadbd ] && [ "$(id -u)" = 0 ]; then
    find /var/lib/mysql /run/mysqld ! -user mysql -exec chown mysql '{}' +
    exec setpriv --reuid mysql --regid mysql --init-groups "${BASH_SOURCE[0]}" "$@"
fi
if [ "$1" = mariadbd ] && [ ! -d /var/lib/mysql/mysql ]; then
    : "${MARIADB_ROOT_PASSWORD:?is not set}"
    mariadb-install-db --skip-test-db --auth-root-authentication-method=normal --datadir=/var/lib/mysql >/dev/null
    mariadbd --skip-networking --socket=/run/mysqld/init.sock &
    pid=$!
    for _ in $(seq 60); do
        if mariadb-admin --socket=/run/mysqld/init.sock -uroot ping >/dev/null 2>&1; then break; fi
        sleep 0.5
    done
    {
        if [ -n "${MARIADB_DATABASE:-}" ]; then echo "CREATE DATABASE IF NOT EXISTS \`$MARIADB_DATABASE\`;"; fi
        if [ -n "${MARIADB_USER:-}" ]; then
            echo "CREATE USER '$MARIADB_USER'@'%' IDENTIFIED BY '$MARIADB_PASSWORD';"
            echo "GRANT ALL ON \`${MARIADB_DATABASE:-%}\`.* TO '$MARIADB_USER'@'%';"
        fi
        echo "ALTER USER 'root'@'localhost' IDENTIFIED BY '$MARIADB_ROOT_PASSWORD';"
    } | mariadb --socket=/run/mysqld/init.sock -uroot
    kill "$pid"
    wait "$pid"
    echo "MariaDB init process done. Ready for start up."
fi
exec "$@"
