mkdir -p /var/lib/influxdb
chown influxdb: /var/lib/influxdb
setpriv --reuid influxdb --regid influxdb --clear-groups influxd -config /etc/influxdb/influxdb.conf > /tmp/influxdb.log 2>&1 & pid=$!
up 8086
curl -s -o /dev/null -w '%{http_code}\n' http://127.0.0.1:8086/ping
curl -s -XPOST http://127.0.0.1:8086/query --data-urlencode 'q=CREATE DATABASE db'
curl -s -XPOST 'http://127.0.0.1:8086/write?db=db' --data-binary 'cpu,host=a value=0.64 1434055562000000000'
curl -s -G 'http://127.0.0.1:8086/query?db=db' --data-urlencode 'q=select * from cpu'
kill $pid
status $pid
