page 8080
echo a-secret > /etc/varnish/secret
varnishd -j unix,user=vcache -F -a :6081 -T localhost:6082 -f /etc/varnish/default.vcl -S /etc/varnish/secret -s malloc,256m > /tmp/varnish.log 2>&1 & pid=$!
up 6081
for i in 1 2 3; do curl -s http://127.0.0.1:6081/x; done
grep -c GET /tmp/pages.log
varnishadm -T localhost:6082 -S /etc/varnish/secret status
kill $pid
status $pid
