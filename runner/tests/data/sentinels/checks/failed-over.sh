#!/bin/sh
# Another master than the first one, and a majority says so.
votes=0
for sentinel in sentinel1 sentinel2 sentinel3; do
    master=$(redis-cli -h $sentinel -p 26379 sentinel get-master-addr-by-name m | head -n 1)
    echo "$sentinel: $master"
    case $master in replica* | 10.*) votes=$((votes + 1)) ;; esac
done
[ "$votes" -ge 2 ]
