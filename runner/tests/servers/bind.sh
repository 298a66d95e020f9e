mkdir -p /run/named /var/cache/bind
rndc-confgen -a > /dev/null 2>&1
chown -R bind: /run/named /var/cache/bind /etc/bind/rndc.key
named -f -u bind & pid=$!
up 53
dig +short @127.0.0.1 localhost A
dig +short @127.0.0.1 -x 127.0.0.1
dig +short +tcp @127.0.0.1 localhost A
rndc status | grep '^server is'
rndc stop
status $pid
