cat > /tmp/app.py <<'F'
def application(env, start):
    start("200 OK", [("Content-Type", "text/plain")])
    return [b"hello " + env["PATH_INFO"].encode() + b"\n"]
F
uwsgi --plugin python3 --http-socket 127.0.0.1:8000 --master --processes 2 --threads 2 --wsgi-file /tmp/app.py > /tmp/uwsgi.log 2>&1 & pid=$!
up 8000
curl -s http://127.0.0.1:8000/x
codes http://127.0.0.1:8000/
kill -INT $pid
status $pid
