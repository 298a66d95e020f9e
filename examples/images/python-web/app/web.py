"""A shop's orders: kept in PostgreSQL, counted in Redis, worked off by worker.py."""

import os

import psycopg2
import redis
from flask import Flask, jsonify, request

app = Flask(__name__)
queue = redis.Redis.from_url(os.environ.get("REDIS_URL", "redis://redis:6379/0"), socket_timeout=5)


def database():
    password = os.environ.get("DB_PASSWORD")
    if "DB_PASSWORD_FILE" in os.environ:
        with open(os.environ["DB_PASSWORD_FILE"]) as file:
            password = file.read().strip()
    return psycopg2.connect(
        host=os.environ.get("DB_HOST", "db"),
        user=os.environ.get("DB_USER", "app"),
        password=password,
        dbname=os.environ.get("DB_NAME", "app"),
        connect_timeout=5,
    )


@app.get("/health")
def health():
    with database() as connection, connection.cursor() as cursor:
        cursor.execute("SELECT count(*) FROM orders")
        orders = cursor.fetchone()[0]
    queue.ping()
    return jsonify(status="ok", orders=orders)


@app.post("/orders")
def add():
    item = (request.get_json(silent=True) or {}).get("item", "nothing")
    with database() as connection, connection.cursor() as cursor:
        cursor.execute("INSERT INTO orders (item) VALUES (%s) RETURNING id", (item,))
        number = cursor.fetchone()[0]
    queue.rpush("orders", number)
    return jsonify(id=number), 201


@app.get("/orders/<int:number>")
def show(number):
    with database() as connection, connection.cursor() as cursor:
        cursor.execute("SELECT item, state FROM orders WHERE id = %s", (number,))
        row = cursor.fetchone()
    if row is None:
        return jsonify(error="no such order"), 404
    return jsonify(id=number, item=row[0], state=row[1])
