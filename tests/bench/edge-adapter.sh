#!/usr/bin/env bash
# One edge for the side-by-side benchmarks: release build, disk store, any Host; HTTP/1.1 and HTTP/2
# plain and over TLS, HTTP/3.
#
# usage: edge-adapter.sh start|stop|kill9|clear|pids|url|tlsurl|h2|disk|version
# environment: ORIGIN (host:port of the master), PORT, TLSPORT, INST (suffix of the run folder),
# EDGEBENCH_TMP (scratch folder; the certificate lies in tls/ there and is the same for all peers),
# LOG (off, squid or json; an access log in the run folder, and an admin socket for its metrics),
# NODE (what the node map says of the node besides, in JSON: '"cap": [...]'), LIMITS (lines of
# [edge.limits], and an admin socket), ASN (a database of networks in MaxMind format).
# STALE is accepted and changes nothing: stale content is served by default.
set -eu
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
bin=${CACHEBOY_BIN:-$root/target/release/cacheboy}
run=${EDGEBENCH_TMP:-${TMPDIR:-/tmp}/edgebench}/run/cacheboy${INST:-}
origin=${ORIGIN:-127.0.0.1:8000}
port=${PORT:-8101}
tlsport=${TLSPORT:-8201}
log=${LOG:-off}
limits=${LIMITS:-}
asn=${ASN:-}
tls=${EDGEBENCH_TMP:-${TMPDIR:-/tmp}/edgebench}/tls

# The certificate as the other peers make it: whoever comes first does.
make_certificate() {
  if [ -f "$tls/cert.pem" ]; then return 0; fi
  mkdir -p "$tls"
  openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 30 \
    -subj /CN=localhost -addext subjectAltName=IP:127.0.0.1 \
    -keyout "$tls/key.pem" -out "$tls/cert.pem" 2> /dev/null
}

write_config() {
  mkdir -p "$run/state"
  cat > "$run/node-map.json" <<JSON
{
  "format": 1, "generation": $(date +%s%3N), "publisher": "bench",
  "map": {
    "sites": {"here": {}},
    "nodes": {"bench-edge": {"site": "here", "addresses": ["127.0.0.1"]${NODE:+, $NODE}}},
    "pools": {"all": {"bench-edge": 1}}, "maps": {"default": {"default": ["all"]}},
    "zones": {"example": {
      "ns": ["ns1.dns.example"], "ttl_s": 3600,
      "soa": {"contact": "noc.example", "negative_ttl_s": 60}}},
    "projects": {"bench": {
      "name": "bench.example", "hosts": ["*"], "map": "default", "ttl_s": 60,
      "all_down": "last-good", "masters": {"origin": {"url": "http://$origin"}}}}},
  "states": {"bench-edge": {"v4": {"state": "up", "reason": "bench", "since_ms": 0}}}
}
JSON
  cat > "$run/edge.toml" <<TOML
[host]
name = "bench-edge"
state_dir = "state"

[follow]
node_map = ["file:node-map.json"]

[edge]
listen = ["127.0.0.1:$port", { address = "127.0.0.1:$tlsport", tls = true, http3 = true }]
drain_notice_s = 0

[[tls.certificate]]
chain = "$tls/cert.pem"
key = "$tls/key.pem"

[[edge.store]]
path = "cache"
size = "20 GiB"
TOML
  if [ "$log" != off ]; then
    printf '\n[[edge.log]]\npath = "access.log"\nformat = "%s"\n' "$log" >> "$run/edge.toml"
  fi
  if [ -n "$limits" ]; then printf '\n[edge.limits]\n%s\n' "$limits" >> "$run/edge.toml"; fi
  if [ -n "$asn" ]; then printf '\n[location]\nasn = "%s"\n' "$asn" >> "$run/edge.toml"; fi
  if [ "$log" != off ] || [ -n "$limits" ]; then
    printf '\n[admin]\nlisten = "unix:admin.sock"\n' >> "$run/edge.toml"
  fi
}

alive() { [ -d "/proc/$1" ] && [ "$(awk '{print $3}' "/proc/$1/stat" 2>/dev/null)" != Z ]; }

pids() {
  local pid
  pid=$(cat "$run/pid" 2>/dev/null) || return 0
  if alive "$pid"; then echo "$pid"; fi
}

wait_gone() {
  for _ in $(seq 600); do
    alive "$1" || return 0
    sleep 0.05
  done
  kill -9 "$1"
}

start() {
  [ -x "$bin" ] || { echo "no $bin: run cargo build --release first" >&2; exit 1; }
  make_certificate
  write_config
  ulimit -n "$(ulimit -Hn)"
  # Without the map of an earlier run, which may name another master.
  rm -f "$run"/state/node-map.last-good.json
  TOKIO_WORKER_THREADS=2 setsid "$bin" edge --config "$run/edge.toml" \
    > "$run/log" 2>&1 < /dev/null &
  echo $! > "$run/pid"
  for _ in $(seq 300); do
    if (exec 3<> "/dev/tcp/127.0.0.1/$port") 2>/dev/null; then return 0; fi
    alive "$(cat "$run/pid")" || break
    sleep 0.02
  done
  echo "the edge did not start:" >&2
  tail -5 "$run/log" >&2
  exit 1
}

stop() {
  local pid
  pid=$(pids)
  if [ -n "$pid" ]; then
    kill "$pid" || true
    wait_gone "$pid"
  fi
  rm -f "$run/pid"
}

kill9() {
  local pid
  pid=$(pids)
  if [ -n "$pid" ]; then
    kill -9 "$pid" || true
    wait_gone "$pid"
  fi
  rm -f "$run/pid"
}

case ${1:-} in
  start) start ;;
  stop) stop ;;
  kill9) kill9 ;;
  clear) rm -rf "$run/cache" "$run/state" ;;
  pids) pids ;;
  url) echo "http://127.0.0.1:$port" ;;
  tlsurl) echo "https://127.0.0.1:$tlsport" ;;
  h2) echo 1 ;;
  disk) echo 1 ;;
  version) "$bin" --version ;;
  *)
    echo "usage: $0 start|stop|kill9|clear|pids|url|tlsurl|h2|disk|version" >&2
    exit 2
    ;;
esac
