#!/bin/sh
# The first process on the host's files. Runs what commands.sh says, hands the output to the host through ports that carry
# nothing else, tells the exit code on a third, and ends the machine.

here=/run/stock-kvm
busybox=$here/busybox

# The device of the port with a name.
port() {
    for port in /sys/class/virtio-ports/*; do
        read -r name <"$port/name" || continue
        if [ "$name" = "$1" ]; then echo "/dev/${port##*/}"; fi
    done
}

seconds() {
    read -r up _ </proc/uptime
    echo "${up%%.*}"
}

# run LIMIT TITLE DIRECTORY COMMAND...: runs a command for at most LIMIT seconds; one that fails is told at the end, and the
# others run all the same.
failed=
run() {
    limit=$1
    title=$2
    directory=$3
    shift 3
    echo "== $title" >&3
    start=$(seconds)
    (cd "$directory" && exec timeout -k 5 "$limit" "$@") </dev/null >&3 2>&4 3>&- 4>&-
    result=$?
    if [ $result -eq 124 ] || [ $result -eq 137 ]; then echo "== $title: ended after $limit s" >&3; fi
    echo "== $title: exit $result after $(($(seconds) - start)) s" >&3
    if [ $result -ne 0 ]; then
        failed="$failed
   $title: exit $result"
        code=1
    fi
}

# only DIRECTORY COMMAND...: runs the one command, with its output and exit code as they are.
only() {
    directory=$1
    shift
    (cd "$directory" && exec "$@") </dev/null >&3 2>&4 3>&- 4>&-
    code=$?
}

# shell DIRECTORY: a shell on the console.
shell() {
    echo "the host's files, read-only below a layer in memory; 'exit' ends the virtual machine" >/dev/ttyS0
    shell=/bin/sh
    if [ -x /bin/bash ]; then shell=/bin/bash; fi
    (cd "$1" && exec "$busybox" setsid -c "$shell" -i) </dev/ttyS0 >/dev/ttyS0 2>&1 3>&- 4>&-
    code=0
}

$busybox ip link set lo up
$busybox hostname stock-kvm

# Ports can be opened only once at a time, and programs open their standard output again: so pipes are between.
$busybox mkfifo $here/stdout $here/stderr
$busybox cat <$here/stdout >"$(port stdout)" &
readers=$!
$busybox cat <$here/stderr >"$(port stderr)" &
readers="$readers $!"
exec 3>$here/stdout 4>$here/stderr

code=0
. $here/commands.sh
if [ -n "$failed" ]; then echo "== failed:$failed" >&3; fi

# The readers end when nobody writes any more. Processes that were left behind may still hold the pipes: two seconds.
exec 3>&- 4>&-
patience=20
for reader in $readers; do
    while kill -0 "$reader" 2>/dev/null && [ $patience -gt 0 ]; do
        sleep 0.1
        patience=$((patience - 1))
    done
done
echo "exit $code" >"$(port status)"
$busybox reboot -f
