#!/usr/bin/env python3
"""Our Python client beside PyPI e2b and the published agent-sandbox-client: same server, same run, turns taken.

usage: client.py --ours PYTHON [--rounds N] [--only CASE,...]

PYTHON is the interpreter of an environment that has our package; the two others come from the test tools
(script/tools). Prints one table: median wall and CPU seconds of each client and case, our CPU and wall as a ratio of
the faster of the two others. Needs root and the base template. Cases: bench/client_run.py.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests/system"))
from service import Service  # noqa: E402

CASES = ["import", "sequential", "concurrent", "stdout", "upload", "download"]


def run(python, package, case, origin, key):
    env = {
        "PATH": "/usr/sbin:/usr/bin:/sbin:/bin",
        "HOME": "/nonexistent",
        "PYTHONDONTWRITEBYTECODE": "1" if case != "import" else "",
        "E2B_API_KEY": key,
        "E2B_API_URL": origin,
        "E2B_SANDBOX_URL": origin,
    }
    done = subprocess.run(
        [python, ROOT / "bench/client_run.py", package, case],
        env={k: v for k, v in env.items() if v},
        cwd="/",
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    if done.returncode != 0:
        raise SystemExit(f"{python} {package} {case}: {done.stderr[-2000:]}")
    return json.loads(done.stdout.splitlines()[-1])


def median(rounds, name):
    return statistics.median(one[name] for one in rounds)


def version_time(abx):
    times = []
    for _ in range(30):
        start = time.perf_counter()
        subprocess.run([abx, "--version"], stdout=subprocess.DEVNULL, check=True)
        times.append(time.perf_counter() - start)
    return statistics.median(times)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--ours", required=True)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--only", default=",".join(CASES))
    args = parser.parse_args()
    tools = Path(os.environ["ABX_TOOLS"])
    clients = {
        "ours": (args.ours, "agent_sandbox"),
        "e2b": (tools / "py/bin/python", "e2b"),
        "published": (tools / "agent-sandbox-client-0.4.0a6/bin/python", "agent_sandbox"),
    }
    build = Path(os.environ.get("ABX_BUILD", ROOT / "build"))
    with Service(build) as service:
        print("| case | " + " | ".join(f"{name}: wall, CPU" for name in clients) + " | ours to the faster: wall, CPU |")
        print("|---|---|---|---|---|")
        for case in args.only.split(","):
            rounds = {name: [] for name in clients}
            for _ in range(args.rounds):
                for name, (python, package) in clients.items():
                    rounds[name].append(run(python, package, case, service.origin, service.key))
            cells, ratios = [], []
            for name in clients:
                cell = f"{median(rounds[name], 'wall'):.3f} s, {median(rounds[name], 'cpu'):.3f} s"
                if case == "import":
                    cell += f", {median(rounds[name], 'rss_kib') / 1024:.1f} MiB"
                    cell += f" (with the classes {median(rounds[name], 'names_rss_kib') / 1024:.1f} MiB)"
                cells.append(cell)
            for what in ("wall", "cpu"):
                best = min(median(rounds[name], what) for name in clients if name != "ours")
                ratios.append(f"{median(rounds['ours'], what) / best:.2f}")
            print(f"| {case} | " + " | ".join(cells) + f" | {', '.join(ratios)} |", flush=True)
    print(f"\nabx --version: {version_time(build / 'abx') * 1e3:.1f} ms")


if __name__ == "__main__":
    main()
