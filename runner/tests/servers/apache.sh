mkdir -p /var/run/apache2 /var/log/apache2 /var/lock/apache2
rm -f /etc/apache2/mods-enabled/mpm_*
for mpm in event prefork; do
    ln -sf ../mods-available/mpm_$mpm.load ../mods-available/mpm_$mpm.conf /etc/apache2/mods-enabled/
    apachectl start 2>/dev/null
    up 80
    apachectl -V 2>/dev/null | grep MPM | tr -s " "
    codes http://127.0.0.1/
    curl -s -o /dev/null -w '%{http_code}\n' http://127.0.0.1/none
    pid=$(cat /var/run/apache2/apache2.pid)
    apachectl graceful 2>/dev/null
    sleep 1
    codes http://127.0.0.1/
    apachectl stop 2>/dev/null
    ended "$pid"
    rm -f /etc/apache2/mods-enabled/mpm_*
done
