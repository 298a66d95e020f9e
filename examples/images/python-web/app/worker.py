"""Takes orders from the queue in Redis and marks them as done in PostgreSQL."""

import time

import psycopg2
import redis

from web import database, queue

while True:
    try:
        found = queue.blpop("orders", timeout=2)
        if found:
            with database() as connection, connection.cursor() as cursor:
                cursor.execute("UPDATE orders SET state = 'done' WHERE id = %s", (int(found[1]),))
            print(f"order {int(found[1])} is done", flush=True)
    except (redis.RedisError, psycopg2.Error) as error:
        print(f"waiting: {error}", flush=True)
        time.sleep(1)
