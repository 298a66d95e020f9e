mkdir -p /var/run/vsftpd/empty /srv/ftp
# As the package makes it: other FTP servers leave it to their user, which vsftpd refuses.
rm -f /srv/ftp/*
chown root:root /srv/ftp
sed 's/^anonymous_enable=NO/anonymous_enable=YES/' /etc/vsftpd.conf > /tmp/vsftpd.conf
echo "a file" > /srv/ftp/f
vsftpd /tmp/vsftpd.conf & pid=$!
up 21
curl -s ftp://127.0.0.1/ | awk '{print $5, $9}'
curl -s ftp://127.0.0.1/f
curl -s --disable-epsv ftp://127.0.0.1/f
curl -s -P - ftp://127.0.0.1/f
kill $pid
status $pid
