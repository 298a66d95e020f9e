mkdir -p /run/sshd /root/.ssh
chmod 700 /root /root/.ssh
printf 'root:*:19000:0:99999:7:::\nsshd:!:19000::::::\n' > /etc/shadow
chmod 600 /etc/shadow
ssh-keygen -A > /dev/null
ssh-keygen -q -t ed25519 -N '' -f /root/.ssh/id
cp /root/.ssh/id.pub /root/.ssh/authorized_keys
/usr/sbin/sshd -D & pid=$!
up 22
options="-o StrictHostKeyChecking=no -o UserKnownHostsFile=/dev/null -o LogLevel=ERROR -i /root/.ssh/id"
ssh $options root@127.0.0.1 'echo in a shell; id -u'
ssh $options -tt root@127.0.0.1 'tty | sed s,[0-9].*,N,; exit 3' < /dev/null | tr -d '\r'
echo "status ${PIPESTATUS[0]}"
echo through a pipe | ssh $options root@127.0.0.1 cat
scp -q $options /etc/passwd root@127.0.0.1:/tmp/copy
cmp /etc/passwd /tmp/copy && echo copied
kill $pid
status $pid
