mkdir /tmp/site
echo '<?php echo "php ", 1 + 1, " ", $_GET["a"] ?? "", "\n";' > /tmp/site/i.php
cd /tmp/site
php -S 127.0.0.1:8000 > /tmp/php.log 2>&1 & pid=$!
up 8000
curl -s "http://127.0.0.1:8000/i.php?a=b"
curl -s -o /dev/null -w '%{http_code}\n' http://127.0.0.1:8000/none.html
codes http://127.0.0.1:8000/i.php
kill -INT $pid
ended $pid
