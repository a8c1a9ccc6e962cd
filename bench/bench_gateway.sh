#!/bin/bash
# abx-gateway beside nginx as a plain reverse proxy, same upstream, same run, taking turns: relayed requests, TLS handshakes,
# many streams at once; and what idle connections cost.
# usage: bench/bench_gateway.sh [ROUNDS of each case, default 5]   (ABX_BUILD: build tree)
set -euo pipefail
cd "$(dirname "$0")/.."
for tool in nginx wrk python3; do
    command -v $tool >/dev/null || { echo "needs $tool (apt-get install nginx-light wrk)" >&2; exit 1; }
done
exec python3 bench/bench_gateway.py "${1:-5}"
