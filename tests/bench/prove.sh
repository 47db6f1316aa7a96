#!/usr/bin/env bash
# Starts a master and an edge of their own on loopback, and proves something of the edge.
#
# usage: prove.sh mixed|crowd-idle|load-latency|abuse|cap [OPTION...]
#        prove.sh WHAT --help
# needs: cargo build --release -p cacheboy --bin cacheboy --example prove
# environment: CACHEBOY_BIN and PROVE_BIN (programs of another build), PORT, TLSPORT, MASTER_PORT,
# TMPDIR (where the scratch folder is made; it is removed at the end).
set -eu
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
export CACHEBOY_BIN=${CACHEBOY_BIN:-$root/target/release/cacheboy}
prove=${PROVE_BIN:-$root/target/release/examples/prove}
export PORT=${PORT:-8191} TLSPORT=${TLSPORT:-8291}
master_port=${MASTER_PORT:-8391}
export ORIGIN=127.0.0.1:$master_port
what=${1:?usage: prove.sh mixed|crowd-idle|load-latency|abuse|cap [OPTION...]}
shift

if [ "${1-}" = --help ]; then exec "$prove" "$what" --help; fi
ulimit -n "$(ulimit -Hn)"
EDGEBENCH_TMP=$(mktemp -d)
export EDGEBENCH_TMP
adapter=$root/tests/bench/edge-adapter.sh
master=
edge=

finish() {
  "$adapter" stop
  # Successors are in the group of the first process.
  if [ -n "$edge" ]; then kill -- "-$edge" 2> /dev/null || true; fi
  if [ -n "$master" ]; then kill "$master"; fi
  rm -rf "$EDGEBENCH_TMP"
}
trap finish EXIT

# The books of an edge are held against what came.
if [ "$what" = mixed ]; then
  export LOG=json
  books=$EDGEBENCH_TMP/run/cacheboy
  set -- --log "$books/access.log" --admin "$books/admin.sock" "$@"
fi
# Fewer places than idle connections come, and half of the usual patience with slow heads.
if [ "$what" = abuse ]; then
  export LIMITS=$'connections = 10000\nhead_timeout_s = 15'
  set -- --admin "$EDGEBENCH_TMP/run/cacheboy/admin.sock" "$@"
fi
# A cap holds for clients of a network.
if [ "$what" = cap ]; then
  export ASN=$EDGEBENCH_TMP/networks.mmdb NODE='"cap": [{"rate": 100000000, "asns": [64500]}]'
  "$prove" networks "$ASN"
fi
mkdir -p "$EDGEBENCH_TMP/tree"
touch "$EDGEBENCH_TMP/tree/.cacheboy-tree"
cat > "$EDGEBENCH_TMP/master.toml" <<TOML
[host]
name = "bench-master"
state_dir = "master"

[master]
listen = ["$ORIGIN"]
tree = "tree"
TOML
"$CACHEBOY_BIN" master --config "$EDGEBENCH_TMP/master.toml" 2> "$EDGEBENCH_TMP/master.log" &
master=$!
"$adapter" start
edge=$("$adapter" pids)

"$prove" "$what" --http "127.0.0.1:$PORT" --https "127.0.0.1:$TLSPORT" \
  --certificate "$EDGEBENCH_TMP/tls/cert.pem" --tree "$EDGEBENCH_TMP/tree" \
  --pid "$edge" "$@"
