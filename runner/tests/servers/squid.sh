mkdir -p /var/log/squid
chown proxy: /var/log/squid
page 80
squid --foreground -sYC > /tmp/squid.log 2>&1 & pid=$!
up 3128
curl -s -x http://127.0.0.1:3128 http://127.0.0.1/x
curl -s -o /dev/null -w '%{http_code}\n' -x http://127.0.0.1:3128 http://127.0.0.1:81/x
squid -k shutdown
status $pid
awk '$7 ~ /http/ {print $4, $7}' /var/log/squid/access.log
