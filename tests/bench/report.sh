#!/usr/bin/env bash
# Reads made logs with `cacheboy report` and with GoAccess, on one core each, from the page cache, and
# prints MB (10^6 bytes) of the file for each second of CPU, and how often faster the report is. Best of
# three. `asn` opens the built-in database too, which takes a fixed time.
#
# usage: report.sh [LINES]   (default 2000000, about 280 MB of Squid's format and twice that of JSON)
# needs: cargo build --release -p cacheboy; goaccess, python3, taskset
# environment: CACHEBOY_BIN (a program of another build), TMPDIR (where the logs are made; they are
# removed at the end).
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
cacheboy=${CACHEBOY_BIN:-$root/target/release/cacheboy}
lines=${1:-2000000}
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT

python3 - "$lines" "$dir" <<'PYTHON'
import json, random, sys
lines, dir = int(sys.argv[1]), sys.argv[2]
dice = random.Random(7)
clients = [(f"{dice.randrange(1, 224)}.{dice.randrange(256)}.{dice.randrange(256)}.0",
            dice.randrange(1, 65000)) for _ in range(20000)]
countries = ["US", "DE", "CA", "FR", "GB", "IT", "BR", "SE", "ES", "PL", "AU", "JP"]
paths = [f"/vlc/{n // 40}.{n % 40}/win32/vlc-{n // 40}.{n % 40}-win32.exe" for n in range(2000)]
agent = "Mozilla/5.0 (Windows NT 6.1; Win64; x64) AppleWebKit/537.36 (KHTML, like Gecko)"
with open(f"{dir}/squid", "w") as squid, open(f"{dir}/json", "w") as js:
    for n in range(lines):
        ms = 1796040000000 + n * 3
        client, asn = clients[min(dice.randrange(20000), dice.randrange(20000))]
        path, size, took = dice.choice(paths), dice.randrange(1, 40_000_000), dice.randrange(90_000)
        squid.write(f"{ms // 1000}.{ms % 1000:03} {took:6} {client} TCP_HIT/200 {size} GET "
                    f"http://download.videolan.example{path} - NONE/- application/x-msdownload AS{asn}\n")
        record = {"ended_ms": ms, "elapsed_ms": took, "client": client, "asn": asn,
                  "country": countries[asn % 12], "node": "mirror1-au", "project": "videolan",
                  "method": "GET", "scheme": "http", "protocol": "HTTP/1.1",
                  "host": "download.videolan.example", "target": path, "status": 200,
                  "bytes": size, "is_aborted": False, "outcome": "hit", "upstream": "",
                  "content_type": "application/x-msdownload", "range": "", "user_agent": agent,
                  "missteered": "", "limit": ""}
        js.write(json.dumps(record, separators=(",", ":")) + "\n")
PYTHON
cat "$dir/squid" "$dir/json" > /dev/null # into the page cache

# speed FILE COMMAND...: the best of three runs, MB for each second of CPU.
speed() {
  local file=$1 bytes best=0 used
  shift
  bytes=$(stat -c %s "$file")
  for _ in 1 2 3; do
    used=$({ TIMEFORMAT='%U + %S'; time taskset -c 0 "$@" > "$dir/out" 2> "$dir/err"; } 2>&1) || {
      cat "$dir/err" >&2
      return 1
    }
    best=$(python3 -c "print(max($best, $bytes / 1e6 / ($used)))")
  done
  echo "$best"
}

report() { speed "$2" "$cacheboy" report "$1" --log "$2"; }
echo "$lines lines, squid $(stat -c %s "$dir/squid") bytes, json $(stat -c %s "$dir/json") bytes"
for subject in asn project; do
  for format in squid json; do
    printf 'cacheboy report %-8s %-6s %6.0f MB/s\n' "$subject" "$format" "$(report "$subject" "$dir/$format")"
  done
done
ours=$(report asn "$dir/squid")
theirs=$(speed "$dir/squid" goaccess "$dir/squid" --no-progress --no-global-config -o "$dir/go.json" \
  --log-format='%x.%^ %~%L %h %^/%s %b %m %U' --datetime-format=%s --date-format=%s --time-format=%s)
printf 'goaccess                 squid  %6.0f MB/s\n' "$theirs"
python3 -c "print(f'ratio on the same file: {$ours / $theirs:.1f}')"
