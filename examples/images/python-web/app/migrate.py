"""Makes the tables; may run as often as one likes."""

from web import database

with database() as connection, connection.cursor() as cursor:
    cursor.execute(
        "CREATE TABLE IF NOT EXISTS orders"
        " (id serial PRIMARY KEY, item text NOT NULL, state text NOT NULL DEFAULT 'new')"
    )
print("migrated")
