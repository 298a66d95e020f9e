#!/bin/sh
# Copies the application into its volume when that is empty, and becomes the server.
set -e
if [ ! -e index.php ]; then
    cp -a /usr/src/html/. .
    chown -R www-data:www-data .
fi
exec "$@"
