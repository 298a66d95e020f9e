mkdir -p /var/lib/unbound
cp /usr/share/dns/root.key /var/lib/unbound/root.key
chown -R unbound /var/lib/unbound
unbound -d & pid=$!
up 53
dig +short @127.0.0.1 localhost A
dig +short +tcp @127.0.0.1 localhost A
kill $pid
status $pid
