#!/bin/sh
curl -sf --max-time 3 http://api:8080/health > /dev/null || { echo "api is down"; exit 1; }
