#!/usr/bin/env python3
"""What the way out of a sandbox costs: connections and bytes through abx-egress beside the same without it.

usage: bench_egress.py [--quick]

A service in a network of its own (tests/system/netlab.py), a server that stands for the internet, and one client program
that runs in turn in a sandbox, and directly on the host: over the same virtual cable, and over the host's loopback. The
last is the direct one that the targets speak of. Needs root and the base template.
"""

import argparse
import contextlib
import json
import statistics
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests/system"))
from envd import Envd  # noqa: E402
from netlab import Lab  # noqa: E402
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


def main():
    arguments = argparse.ArgumentParser()
    arguments.add_argument("--quick", action="store_true")
    quick = arguments.parse_args().quick
    rounds, mib, turns = (200, 200, 3) if quick else (1000, 1000, 7)
    with Lab() as lab, server(lab.internet, "0.0.0.0"), server(lab.host, "127.0.0.9"), lab.host.entered():
        lab.address(WEB)
        with Service(ROOT / "build", "--gateways", "1") as service:
            box = Envd(service, service.create())

            def inside():
                code, out, err = box.run("", 600, "/usr/bin/python3", ["-c", CLIENT, WEB, str(rounds), str(mib)])
                assert code == 0, err
                return json.loads(out)

            def outside(address):
                command = ["/usr/bin/python3", "-c", CLIENT, address, str(rounds), str(mib)]
                return json.loads(subprocess.run(command, stdout=subprocess.PIPE, check=True).stdout)

            ways = {"through egress": inside, "over the cable": lambda: outside(WEB), "loopback": lambda: outside("127.0.0.9")}
            found = {name: [] for name in ways}
            for _ in range(turns):  # in turns, so that a noisy moment hits all
                for name, run in ways.items():
                    found[name].append(run())
    median = {name: [statistics.median(column) for column in zip(*rows)] for name, rows in found.items()}
    print("| way | connect and first byte | up | down |\n|---|---|---|---|")
    for name, (connect, up, down) in median.items():
        print(f"| {name} | {connect:.3f} ms | {up:.0f} MiB/s | {down:.0f} MiB/s |")
    mine, cable, loopback = median.values()
    print(
        f"added to a connect: {mine[0] - cable[0]:.3f} ms; of loopback's throughput: up {mine[1] / loopback[1]:.2f}, down {mine[2] / loopback[2]:.2f}"
    )


if __name__ == "__main__":
    main()
