#!/usr/bin/env bash
# What churn in the routing table costs DNS clients: a full table (1,000,000 IPv4 and 200,000 IPv6 routes) goes to
# a `bgp` role, which a `dns` role follows; then 10,000 updates a second, half of them withdrawals, beside
# 10,000 queries a second. Prints the latencies of queries before and during that, and what the processes took.
#
# usage: bgp-churn.sh [SECONDS]   (default 60)
# needs: cargo build --release -p cacheboy; the benchmarks beside other servers in BENCH, run once so that
# $BENCH_TMP/dnsload and the node map of its run are there; python3
# environment: BENCH (default ../shared/bench/dns beside this project), BENCH_TMP, CACHEBOY_BIN.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
export CACHEBOY_REPO=$root BENCH_TMP=${BENCH_TMP:-${TMPDIR:-/tmp}/dnsbench}
bench=${BENCH:-$root/../shared/bench/dns}
bin=${CACHEBOY_BIN:-$root/target/release/cacheboy}
seconds=${1:-60}
dir=$(mktemp -d)
pids=()
trap 'kill "${pids[@]}" 2>/dev/null || true; wait; rm -rf "$dir"' EXIT

[ -f "$BENCH_TMP/bgp/feed.bin" ] || python3 "$bench/bgpfeed.py" gen "$BENCH_TMP/bgp" 1000000 200000
"$bench/peers/cacheboy.sh" gen
cp "$BENCH_TMP/run/cacheboy/next.json" "$dir/node-map.json"
"$root/tests/bench/bgp-adapter.sh" start "$dir/bgp" 1793 >"$dir/bgp.log" 2>&1 &
pids+=($!)
bgp=$!
mkdir -p "$dir/state"
cat >"$dir/dns.toml" <<EOF
[host]
name = "churn"
state_dir = "state"
[follow]
node_map = ["file:node-map.json"]
[location]
country = "$(realpath "$bench/../../data/country.mmdb")"
asn = "$(realpath "$bench/../../data/asn.mmdb")"
routes = "http://127.0.0.1:8054/routes"
routes_move_percent = 100
[dns]
listen = ["127.0.0.1:5398"]
udp_threads = 2
EOF
(cd "$dir" && exec "$bin" dns --config dns.toml >dns.log 2>&1) &
pids+=($!)
dns=$!

# Sends the table, says so, and then churns when told.
cat >"$dir/churn.py" <<'PYTHON'
import socket, struct, sys, threading, time
feed, seconds, folder = sys.argv[1], int(sys.argv[2]), sys.argv[3]
message = lambda kind, body: b"\xff" * 16 + struct.pack(">HB", 19 + len(body), kind) + body
s = socket.socket()
s.bind(("127.0.0.2", 0))
for _ in range(100):
    try:
        s.connect(("127.0.0.1", 1793))
        break
    except OSError:
        time.sleep(0.1)
capabilities = bytes([1, 4, 0, 1, 0, 1, 1, 4, 0, 2, 0, 1, 65, 4]) + struct.pack(">I", 65001)
parameters = bytes([2, len(capabilities)]) + capabilities
s.sendall(message(1, struct.pack(">BHH4sB", 4, 65001, 600, bytes([192, 0, 2, 9]), len(parameters)) + parameters))
threading.Thread(target=lambda: [None for _ in iter(lambda: s.recv(65536), b"")], daemon=True).start()
s.sendall(message(4, b""))
bytes_of = open(feed + "/feed.bin", "rb").read()
s.sendall(bytes_of)
open(folder + "/sent", "w").close()
# IPv4 messages of the feed, and what withdraws their prefixes.
updates, at = [], 0
while at < len(bytes_of) and len(updates) < 50000:
    length = struct.unpack_from(">H", bytes_of, at + 16)[0]
    body = bytes_of[at + 19:at + length]
    attributes = struct.unpack_from(">H", body, 2)[0]
    prefixes = body[4 + attributes:]
    if prefixes:
        gone = message(2, struct.pack(">H", len(prefixes)) + prefixes + b"\0\0")
        updates.append((gone, bytes_of[at:at + length]))
    at += length
while True:
    try:
        open(folder + "/go").close()
        break
    except OSError:
        time.sleep(0.05)
begun, sent, turn = time.monotonic(), 0, 0
while time.monotonic() - begun < seconds:
    part = []
    for _ in range(500):
        gone, back = updates[turn % len(updates)]
        part += [gone, back] if turn // len(updates) % 2 == 0 else [back, gone]
        turn += 1
    s.sendall(b"".join(part))
    sent += len(part)
    time.sleep(max(0, begun + sent / 10000 - time.monotonic()))
print("updates sent:", sent, "in", round(time.monotonic() - begun, 1), "s", flush=True)
time.sleep(5)
PYTHON
python3 "$dir/churn.py" "$BENCH_TMP/bgp" "$seconds" "$dir" &
pids+=($!)
until [ -e "$dir/sent" ]; do sleep 0.1; done
until [ "$("$root/tests/bench/bgp-adapter.sh" count "$dir/bgp" | tr -d ' ')" = 1000000200000 ]; do sleep 0.2; done
sleep 5 # the follower has them
load() { "$BENCH_TMP/dnsload" -p 5398 -t "$1" -r 10000 -c 16 -e | python3 -c '
import json, sys
load = json.load(sys.stdin)
print(sys.argv[1], {k: load[k] for k in ("sent", "recv", "lost", "servfail", "p50_us", "p99_us", "p999_us", "max_us")})' "$2"; }
load 10 "before:"
cpu() { awk '{print ($14 + $15) / 100}' "/proc/$1/stat"; }
took=("$(cpu $bgp)" "$(cpu $dns)")
touch "$dir/go"
load "$seconds" "during:"
echo "CPU s: bgp ${took[0]} -> $(cpu $bgp), dns ${took[1]} -> $(cpu $dns);" \
  "MiB: bgp $(awk '/VmRSS/{print int($2/1024)}' /proc/$bgp/status), dns $(awk '/VmRSS/{print int($2/1024)}' /proc/$dns/status)," \
  "at most $(awk '/VmHWM/{print int($2/1024)}' /proc/$dns/status)"
wait "${pids[2]}" || true
