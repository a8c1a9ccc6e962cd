#!/bin/bash
# CPU per relayed request: abx-gateway beside nginx as a reverse proxy, same upstream, same run.
# usage: bench/bench_gateway.sh [SECONDS per case, default 4]   (ABX_BUILD: build tree)
set -euo pipefail
cd "$(dirname "$0")/.."
for tool in nginx wrk python3; do
    command -v $tool >/dev/null || { echo "needs $tool (apt-get install nginx-light wrk)" >&2; exit 1; }
done
exec python3 bench/bench_gateway.py "${1:-4}"
