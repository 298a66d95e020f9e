mkdir -p /run/dnsmasq
echo '10.1.2.3 box' >> /etc/hosts
dnsmasq -x /run/dnsmasq/dnsmasq.pid -u nobody --local-service
up 53
dig +short @127.0.0.1 box
dig +short +tcp @127.0.0.1 box
pid=$(cat /run/dnsmasq/dnsmasq.pid)
kill "$pid"
ended "$pid"
