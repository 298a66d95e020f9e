mkdir -p /run/haproxy /var/lib/haproxy
page 8080
cat /etc/haproxy/haproxy.cfg - > /tmp/haproxy.cfg <<'F'
frontend front
    bind 127.0.0.1:8888
    default_backend pages
backend pages
    server one 127.0.0.1:8080 check
F
haproxy -Ws -f /tmp/haproxy.cfg -p /run/haproxy.pid > /tmp/haproxy.log 2>&1 & pid=$!
up 8888
curl -s http://127.0.0.1:8888/x
codes http://127.0.0.1:8888/x
echo 'show servers state' | socat - /run/haproxy/admin.sock | grep -c one
kill -USR1 $pid
status $pid
