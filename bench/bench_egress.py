#!/usr/bin/env python3
"""What the way out of a sandbox costs: connections and bytes through abx-egress beside the same without it.

usage: bench_egress.py [--quick]

A service in a network of its own (tests/system/netlab.py), and one client program that runs in turn in a sandbox and
directly on the host. Its server is on the host itself, reached over loopback (from the sandbox by --egress-allow): that is
the direct one that the targets speak of. And one that stands for the internet, behind a virtual cable. Needs root and the
base template.
"""

import argparse
import contextlib
import json
import os
import statistics
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests/system"))
from envd import Envd  # noqa: E402
from netlab import HOST, Lab  # noqa: E402
from service import Service  # noqa: E402

WEB = "198.51.100.10"

# Port 1: a byte for each connection. Port 2: takes all, says how much. Port 3: sends as much as it is told.
SERVER = """
import os, socket, sys
data = bytes(1 << 20)
def serve(port, handle):
    if os.fork():
        return
    s = socket.create_server((sys.argv[1], port), backlog=4096)
    while True:
        c = s.accept()[0]
        with c:
            handle(c)
def take(c):
    n, view = 0, bytearray(1 << 20)
    while got := c.recv_into(view):
        n += got
    c.sendall(b"%d\\n" % n)
def send(c):
    n = int(c.makefile().readline())
    for i in range(n):
        c.sendall(data)
serve(1, lambda c: c.sendall(b"x"))
serve(2, take)
serve(3, send)
print("ready", flush=True)
sys.stdin.read()
os.killpg(0, 9)
"""

CLIENT = """
import json, socket, sys, time
ip, rounds, mib = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
times = []
for i in range(rounds):
    t = time.perf_counter()
    with socket.create_connection((ip, 1)) as s:
        s.recv(1)
    times.append(time.perf_counter() - t)
data, view = bytes(1 << 20), bytearray(1 << 20)
t = time.perf_counter()
with socket.create_connection((ip, 2)) as s:
    for i in range(mib):
        s.sendall(data)
    s.shutdown(socket.SHUT_WR)
    assert s.recv(100) == b"%d\\n" % (mib << 20)
up = mib / (time.perf_counter() - t)
t = time.perf_counter()
n = 0
with socket.create_connection((ip, 3)) as s:
    s.sendall(b"%d\\n" % mib)
    while got := s.recv_into(view):
        n += got
assert n == mib << 20
print(json.dumps([sorted(times)[rounds // 2] * 1e3, up, mib / (time.perf_counter() - t)]))
"""


@contextlib.contextmanager
def server(space, address):
    with space.entered():
        process = subprocess.Popen(
            [sys.executable, "-c", SERVER, address], stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True
        )
    assert process.stdout.readline() == b"ready\n"
    try:
        yield
    finally:
        process.stdin.close()
        process.wait(20)
        process.stdout.close()


def processor_seconds(pid):
    stat = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(stat[11]) + int(stat[12])) / os.sysconf("SC_CLK_TCK")


def main():
    arguments = argparse.ArgumentParser()
    arguments.add_argument("--quick", action="store_true")
    quick = arguments.parse_args().quick
    rounds, mib, turns = (200, 200, 3) if quick else (1000, 1000, 7)
    with Lab() as lab, server(lab.internet, "0.0.0.0"), server(lab.host, HOST), lab.host.entered():
        lab.address(WEB)
        with Service(ROOT / "build", "--gateways", "1", "--egress-allow", f"{HOST}/32") as service:
            box = Envd(service, service.create())
            (egress,) = service.roles()["abx-egress"]

            def inside(address):
                before = processor_seconds(egress)
                code, out, err = box.run("", 600, "/usr/bin/python3", ["-c", CLIENT, address, str(rounds), str(mib)])
                assert code == 0, err
                return [*json.loads(out), (processor_seconds(egress) - before) / (2 * mib / 1024)]

            def outside(address):
                command = ["/usr/bin/python3", "-c", CLIENT, address, str(rounds), str(mib)]
                return [*json.loads(subprocess.run(command, stdout=subprocess.PIPE, check=True).stdout), 0]

            ways = {
                "through egress": lambda: inside(HOST),
                "loopback": lambda: outside(HOST),
                "through egress, over the cable": lambda: inside(WEB),
                "the cable": lambda: outside(WEB),
            }
            found = {name: [] for name in ways}
            for _ in range(turns):  # in turns, so that a noisy moment hits all
                for name, run in ways.items():
                    found[name].append(run())
    median = {name: [statistics.median(column) for column in zip(*rows)] for name, rows in found.items()}
    print("| way | connect and first byte | up | down | egress's processor time |\n|---|---|---|---|---|")
    for name, (connect, up, down, cpu) in median.items():
        print(f"| {name} | {connect:.3f} ms | {up:.0f} MiB/s | {down:.0f} MiB/s | {f'{cpu:.2f} s/GiB' if cpu else ''} |")
    for name, mine, direct in zip(("loopback", "the cable"), *(list(found.values())[i::2] for i in (0, 1))):
        added = statistics.median(m[0] - d[0] for m, d in zip(mine, direct))
        up, down = ([m[i] / d[i] for m, d in zip(mine, direct)] for i in (1, 2))
        print(
            f"{name}: added to a connect {added:.3f} ms; of the throughput up {statistics.median(up):.2f} "
            f"({min(up):.2f} to {max(up):.2f}), down {statistics.median(down):.2f} ({min(down):.2f} to {max(down):.2f})"
        )


if __name__ == "__main__":
    main()
