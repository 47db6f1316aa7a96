#!/bin/bash
# Cacheboy as a collector of routes, for measurements: AS 65000, passive on 127.0.0.1:PORT, its peer is
# 127.0.0.2 (AS 65001).
#   bgp-adapter.sh start DIR PORT    stays in the foreground, as the very process that is measured
#   bgp-adapter.sh count DIR         prints how many IPv4 and IPv6 routes it has, by its own counters
# CACHEBOY_BIN: the program (default: target/release/cacheboy of this tree). CACHEBOY_HTTP: where it tells
# of itself (default 127.0.0.1:8054).
set -eu
repo=$(cd "$(dirname "$0")/../.." && pwd)
bin=${CACHEBOY_BIN:-$repo/target/release/cacheboy}
http=${CACHEBOY_HTTP:-127.0.0.1:8054}
case "${1-}" in
start)
    dir=$2 port=$3
    mkdir -p "$dir"
    cat >"$dir/host.toml" <<EOF
[host]
name = "bench"
state_dir = "state"
[bgp]
asn = 65000
identifier = "192.0.2.13"
listen = ["127.0.0.1:$port"]
publish = ["$http"]
[[bgp.peer]]
name = "feed"
address = "127.0.0.2"
asn = 65001
passive = true
EOF
    exec "$bin" bgp --config "$dir/host.toml"
    ;;
count)
    curl -s -m 5 "http://$http/status" | python3 -c '
import json, sys
routes = json.load(sys.stdin)["peers"]["feed"]["routes"]
print(routes["v4"], routes["v6"])'
    ;;
*)
    sed -n '2,7s/^# \{0,1\}//p' "$0" >&2
    exit 2
    ;;
esac
