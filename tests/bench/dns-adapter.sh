#!/usr/bin/env bash
# One DNS redirector for the side-by-side benchmarks: release build, two UDP threads, the map of
# $D/map.json with the country database $GEODB.
#
# usage: dns-adapter.sh gen [a|b]|start|stop|reload|port|pids|version
# environment: D (folder of the run), PORT, GEODB, CACHEBOY_BIN (another binary).
#
# "gen" translates map.json into a node map that waits; "start" and "reload" put it in place, and
# the server sees the file change.
set -eu
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
bin=${CACHEBOY_BIN:-$root/target/release/cacheboy}

gen() {
  python3 - "$D/map.json" "$D/next.json" <<'PY'
import json, sys, time
with open(sys.argv[1]) as f:
    m = json.load(f)
pools = m["pools"]
def order(pool):
    return [pool] + [p for p in m["fallback"] if p != pool]
nodes = {n["name"]: {"site": "bench", "addresses": [n["v4"], n["v6"]]}
         for members in pools.values() for n in members}
up = {"state": "up", "reason": "bench", "since_ms": 0}
document = {
    "format": 1, "generation": int(time.time() * 1000), "publisher": "bench",
    "map": {
        "sites": {"bench": {}},
        "nodes": nodes,
        "pools": {p: {n["name"]: n["weight"] for n in members} for p, members in pools.items()},
        "maps": {"world": {
            "default": order(m["default_pool"]),
            "continent": {k: order(p) for k, p in m["continent"].items()},
            "country": {k: order(p) for k, p in m["country"].items()}}},
        "zones": {m["zone"]: {
            "ns": ["ns1." + m["zone"]],
            "soa": {"contact": "host." + m["zone"], "negative_ttl_s": 60},
            "ttl_s": 3600,
            "hosts": {"ns1." + m["zone"]: ["127.0.0.1"]},
            "txt": {"big." + m["zone"]: ["x" * 250 * 9]}}},
        "projects": {"videolan": {
            "name": m["name"], "hosts": ["download.videolan.example"], "map": "world",
            "ttl_s": m["ttl"], "all_down": "last-good",
            "masters": {"m1": {"url": "http://127.0.0.1:8080"}}}}},
    "states": {n: {"v4": up, "v6": up} for n in nodes}}
with open(sys.argv[2], "w") as f:
    json.dump(document, f)
PY
}

write_config() {
  rm -rf "$D/state"
  mkdir -p "$D/state"
  cat > "$D/dns.toml" <<TOML
[host]
name = "bench-dns"
state_dir = "state"

[follow]
node_map = ["file:node-map.json"]

[location]
country = "$(realpath "$GEODB")"

[dns]
listen = ["127.0.0.1:$PORT"]
udp_threads = 2
TOML
}

alive() { [ -d "/proc/$1" ] && [ "$(awk '{print $3}' "/proc/$1/stat" 2>/dev/null)" != Z ]; }

pids() {
  local pid
  pid=$(cat "$D/pid" 2>/dev/null) || return 0
  if alive "$pid"; then echo "$pid"; fi
}

reload() { if [ -f "$D/next.json" ]; then mv "$D/next.json" "$D/node-map.json"; fi; }

start() {
  write_config
  reload
  "$bin" dns --config "$D/dns.toml" > "$D/out" 2>&1 < /dev/null &
  echo $! > "$D/pid"
}

stop() {
  local pid
  pid=$(pids)
  [ -n "$pid" ] || return 0
  kill "$pid"
  for _ in $(seq 100); do
    alive "$pid" || break
    sleep 0.05
  done
  if alive "$pid"; then kill -9 "$pid"; fi
  rm -f "$D/pid"
}

case ${1:-} in
  gen | start | stop | reload | pids) "$1" ;;
  port) echo "$PORT" ;;
  version) "$bin" --version ;;
  *)
    sed -n '2,10s/^# \{0,1\}//p' "${BASH_SOURCE[0]}" >&2
    exit 2
    ;;
esac
