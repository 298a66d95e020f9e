# What the scripts here begin with. Each starts a server with the files that Debian installs, as its unit does, asks it something
# with an ordinary client, and stops it.
export PATH=/usr/local/sbin:/usr/sbin:/sbin:/usr/local/bin:/usr/bin:/bin HOME=/root LC_ALL=C
cd /tmp

# up PORT: waits until somebody listens there.
up() {
    local i
    for i in $(seq 300); do
        if (exec 3<>"/dev/tcp/127.0.0.1/$1") 2>/dev/null; then return; fi
        sleep 0.2
    done
    echo "nobody listens on port $1"
    exit 9
}

# ended PID: waits until the daemon of that number is gone.
ended() {
    local i
    for i in $(seq 300); do
        if [ ! -d "/proc/$1" ]; then echo ended; return; fi
        sleep 0.1
    done
    echo "process $1 runs on"
}

# status PID: how the child of that number ended.
status() {
    wait "$1"
    echo "status $?"
}

# page PORT: a web server with one page, x.
page() {
    mkdir -p /tmp/pages
    echo "a page" > /tmp/pages/x
    (cd /tmp/pages && exec python3 -m http.server "$1" --bind 127.0.0.1) > /tmp/pages.log 2>&1 &
    up "$1"
}

# codes URL: the answers to 20 requests, four at a time.
codes() { seq 20 | xargs -P 4 -I{} curl -s -o /dev/null -w '%{http_code}\n' "$1" | sort | uniq -c | tr -s ' '; }
