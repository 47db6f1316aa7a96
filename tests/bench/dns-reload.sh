#!/usr/bin/env bash
# A whole new map each second under 20,000 queries a second with random client subnets: every address
# of the map moves each time. Prints how many were asked, answered and lost, how many were SERVFAIL,
# the slowest, and how many of the lost the kernel dropped at the server's sockets: the rest of them it
# dropped at the client's. Exits 1 when one was lost or SERVFAIL.
#
# usage: dns-reload.sh [SECONDS]   (default 60)
# needs: cargo build --release -p cacheboy; the benchmarks beside other servers in BENCH (their
# peers/cacheboy.sh calls dns-adapter.sh), run once so that $BENCH_TMP/dnsload is there; python3, dig, ss, bc
# environment: BENCH (default ../shared/bench/dns beside this project), BENCH_TMP, CACHEBOY_BIN.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
export CACHEBOY_REPO=$root BENCH_TMP=${BENCH_TMP:-${TMPDIR:-/tmp}/dnsbench}
peer=${BENCH:-$root/../shared/bench/dns}/peers/cacheboy.sh
seconds=${1:-60}

"$peer" gen a
"$peer" start
trap '"$peer" stop' EXIT
port=$("$peer" port)
until dig @127.0.0.1 -p "$port" videolan.cdn.test A +short +time=1 +tries=1 | grep -q '^198\.'; do
  sleep 0.05
done
result=$(mktemp)
"$BENCH_TMP/dnsload" -p "$port" -t "$seconds" -r 20000 -c 16 -e > "$result" &
load=$!
maps=0
while kill -0 "$load" 2>/dev/null; do
  maps=$((maps + 1))
  if [ $((maps % 2)) -eq 1 ]; then "$peer" gen b; else "$peer" gen a; fi
  "$peer" reload
  sleep 1
done
wait "$load"
# What the kernel dropped because the server did not read in time: the last number of skmem.
dropped=$(ss -uamnH "sport = :$port" | sed -n 's/.*,d\([0-9]*\)).*/\1/p' | paste -sd+ | bc)
python3 - "$result" "$maps" "$dropped" <<'PYTHON'
import json, sys
with open(sys.argv[1]) as f:
    load = json.load(f)
print(sys.argv[2], "maps:", {k: load[k] for k in
      ("sent", "recv", "lost", "servfail", "old", "new", "p50_us", "p99_us", "max_us")},
      "dropped before the server:", sys.argv[3])
sys.exit(load["lost"] > 0 or load["servfail"] > 0 or load["new"] == 0)
PYTHON
rm -f "$result"
