#!/usr/bin/env python3
"""What measuring many sandboxes costs, and whether creates feel it.

usage: bench_metrics.py [N]

N (1000) idle sandboxes of one service; the processor time of the roles that take part in each pass (one every 5 s), and how
long creates take during passes and between them. Needs root and the base template.
"""

import statistics
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests/system"))
import processes  # noqa: E402
from service import Service  # noqa: E402

PASSES = 6


def cpu_ms(pid):
    fields = processes.read(pid, "stat").rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) * 10


def measuring_worker(engine):
    for pid in processes.every():
        args = (processes.read(pid, "cmdline") or "").split("\0")
        parent = (processes.read(pid, "stat") or ") ? 0").rsplit(")", 1)[1].split()[1]
        if args[1:3] == ["--worker", "measure"] and int(parent) == engine:
            return pid
    raise SystemExit("no worker measures")


def figures(times):
    return f"median {statistics.median(times):.1f} ms, 95 % {sorted(times)[int(len(times) * 0.95)]:.1f} ms ({len(times)})"


def main(n):
    with Service(ROOT / "build") as service:
        for _ in range(n):
            service.create(timeout=3600)
        (engine,), (control,) = service.roles()["abx-engine"], service.roles()["abx-control"]
        pids = {"worker": measuring_worker(engine), "engine": engine, "control": control}
        before = {name: cpu_ms(pid) for name, pid in pids.items()}
        time.sleep(5 * PASSES)
        for name, pid in pids.items():
            print(f"{name}: {(cpu_ms(pid) - before[name]) / PASSES:.1f} ms of a processor for each pass over {n}")
        during, between = [], []
        end = time.monotonic() + 5 * PASSES
        while time.monotonic() < end:
            begin = time.monotonic()
            made = service.create(timeout=600)
            took = (time.monotonic() - begin) * 1000
            (during if time.time() % 5 < 0.6 else between).append(took)
            service.kill(made["sandboxID"])
        print("creates during a pass:", figures(during))
        print("creates between passes:", figures(between))


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 1000)
