#!/usr/bin/env python3
"""Measures a service built in this tree, side by side with other ways to start the same root file system.

usage: bench.py [--quick] [--only NAME,...] [--cycles N]

Prints one table: what, ours, the peer in the same run, ratio, target. Needs root, the base template and (for the
peers) crun, runc, bubblewrap. Python's standard library only; requests are raw sockets, so that the client costs
about 20 us. Every figure is a median unless it says otherwise; peers and ours take turns, so that a noisy moment hits
both. docs/performance.md says what each peer does not do.
"""

import argparse
import base64
import json
import os
import re
import socket
import statistics
import struct
import subprocess
import sys
import threading
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests/system"))
from service import Service  # noqa: E402

ROWS = []


def row(what, ours, peer="", target="", note=""):
    ROWS.append((what, ours, peer, target, note))
    print(f"  {what}: {ours} {peer} {target} {note}", file=sys.stderr, flush=True)


def ms(seconds):
    return f"{seconds * 1e3:.2f} ms"


def median(values):
    return statistics.median(values)


def quantile(values, q):
    return sorted(values)[min(len(values) - 1, int(len(values) * q))]


class Client:
    """One keep-alive connection; requests written and answers parsed by hand."""

    def __init__(self, port, key):
        self.sock = socket.create_connection(("127.0.0.1", port), 30)
        self.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.key = key
        self.buf = b""

    def close(self):
        self.sock.close()

    def head(self, method, path, headers, length):
        lines = [f"{method} {path} HTTP/1.1", "Host: 127.0.0.1", f"X-API-Key: {self.key}", *headers]
        if length is not None:
            lines.append(f"Content-Length: {length}")
        return ("\r\n".join(lines) + "\r\n\r\n").encode()

    def read_more(self):
        data = self.sock.recv(262144)
        if not data:
            raise ConnectionError("closed")
        self.buf += data

    def read_head(self):
        while b"\r\n\r\n" not in self.buf:
            self.read_more()
        head, self.buf = self.buf.split(b"\r\n\r\n", 1)
        status = int(head[9:12])
        length = re.search(rb"(?i)content-length: *(\d+)", head)
        return status, int(length.group(1)) if length else None, b"chunked" in head.lower()

    def read_body(self, length, chunked):
        if not chunked:
            while len(self.buf) < (length or 0):
                self.read_more()
            body, self.buf = self.buf[: length or 0], self.buf[length or 0 :]
            return body
        body = b""
        while True:
            while b"\r\n" not in self.buf:
                self.read_more()
            size, self.buf = self.buf.split(b"\r\n", 1)
            n = int(size, 16)
            while len(self.buf) < n + 2:
                self.read_more()
            body, self.buf = body + self.buf[:n], self.buf[n + 2 :]
            if n == 0:
                return body

    def request(self, method, path, body=None, headers=()):
        data = b"" if body is None else body if isinstance(body, bytes) else json.dumps(body).encode()
        kind = [] if body is None else ["Content-Type: application/json"]
        self.sock.sendall(self.head(method, path, [*kind, *headers], len(data) if data or method == "POST" else None) + data)
        status, length, chunked = self.read_head()
        return status, self.read_body(length if status != 204 else 0, chunked)

    def create(self):
        status, body = self.request("POST", "/v2/sandboxes", {"templateID": "base", "timeout": 600})
        if status != 201:
            raise RuntimeError(f"create: {status} {body!r}")
        return json.loads(body)

    def kill(self, box):
        status, body = self.request("DELETE", f"/sandboxes/{box['sandboxID']}")
        if status != 204:
            raise RuntimeError(f"kill: {status} {body!r}")

    @staticmethod
    def box_headers(box):
        return [
            f"E2b-Sandbox-Id: {box['sandboxID']}", "E2b-Sandbox-Port: 49983",
            f"X-Access-Token: {box['envdAccessToken']}",
        ]

    def run(self, box, cmd, args):
        """Start until the end event; (exit code, stdout)."""
        message = json.dumps({"process": {"cmd": cmd, "args": args}, "stdin": False}).encode()
        data = struct.pack(">BI", 0, len(message)) + message
        headers = [*self.box_headers(box), "Content-Type: application/connect+json", "Connect-Protocol-Version: 1"]
        self.sock.sendall(self.head("POST", "/process.Process/Start", headers, len(data)) + data)
        status, length, chunked = self.read_head()
        body = self.read_body(length, chunked)
        if status != 200:
            raise RuntimeError(f"run: {status} {body!r}")
        out, code = b"", None
        while body:
            flags, n = struct.unpack(">BI", body[:5])
            event = json.loads(body[5 : 5 + n])
            body = body[5 + n :]
            if flags & 2 and "error" in event:
                raise RuntimeError(f"run: {event}")
            event = event.get("event", {})
            out += base64.b64decode(event.get("data", {}).get("stdout", ""))
            if "end" in event:
                code = event["end"].get("exitCode", 0)
        return code, out


def timed(fn, *args):
    start = time.perf_counter()
    result = fn(*args)
    return time.perf_counter() - start, result


# --- peers -----------------------------------------------------------------------------------------------------


class Peers:
    """Runs other tools in a private mount namespace (crun refuses hybrid cgroup hosts otherwise)."""

    def __init__(self, rootfs, work):
        self.work = work
        bundle = work / "bundle"
        bundle.mkdir(parents=True, exist_ok=True)
        subprocess.run(["runc", "spec"], cwd=bundle, check=True)
        spec = json.loads((bundle / "config.json").read_text())
        spec["root"] = {"path": str(rootfs), "readonly": True}
        spec["process"].update(terminal=False, args=["/bin/true"])
        spec["process"].pop("rlimits", None)
        (bundle / "config.json").write_text(json.dumps(spec))
        self.commands = {
            "crun": ["crun", "run", "--bundle", str(bundle)],
            "runc": ["runc", "run", "--bundle", str(bundle)],
            "bwrap": ["bwrap", "--unshare-all", "--ro-bind", str(rootfs), "/", "--proc", "/proc", "--dev", "/dev", "/bin/true"],
            "unshare": ["unshare", "-mpuinf", "--mount-proc", "chroot", str(rootfs), "/bin/true"],
        }
        script = (
            "import json,subprocess,sys,time\n"
            "for line in sys.stdin:\n"
            "    argv=json.loads(line); t=time.perf_counter()\n"
            "    r=subprocess.run(argv,stdin=subprocess.DEVNULL,stdout=subprocess.DEVNULL,stderr=subprocess.PIPE)\n"
            "    d=time.perf_counter()-t\n"
            "    print(json.dumps([r.returncode,d,r.stderr.decode()[-300:]]),flush=True)\n"
        )
        self.worker = subprocess.Popen(
            ["unshare", "-m", "sh", "-c", 'umount /sys/fs/cgroup/unified 2>/dev/null; exec "$@"', "sh", sys.executable, "-c", script],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )
        self.count = 0

    def run(self, name):
        argv = list(self.commands[name])
        if name in ("crun", "runc"):
            self.count += 1
            argv.append(f"abx-bench-{os.getpid()}-{self.count}")
        self.worker.stdin.write(json.dumps(argv) + "\n")
        self.worker.stdin.flush()
        code, seconds, err = json.loads(self.worker.stdout.readline())
        if code != 0:
            raise RuntimeError(f"{name}: {err}")
        return seconds

    def close(self):
        self.worker.stdin.close()
        self.worker.wait(10)


# --- measurements ----------------------------------------------------------------------------------------------


def bench_create(cold, warm, peers, n):
    """Create through the gateway, cold and from the pool, taking turns with the peers."""
    times = {name: [] for name in (*peers.commands, "cold", "warm", "e2e")}
    cold_client, warm_client = Client(cold.port, cold.key), Client(warm.port, warm.key)
    for name in list(peers.commands):
        try:
            peers.run(name)
        except (RuntimeError, json.JSONDecodeError) as e:
            print(f"  no {name}: {e}", file=sys.stderr)
            del peers.commands[name]
    for _ in range(n):
        for name in peers.commands:
            times[name].append(peers.run(name))
        for name, client in (("cold", cold_client), ("warm", warm_client)):
            seconds, box = timed(client.create)
            times[name].append(seconds)
            client.kill(box)

        def whole():
            box = warm_client.create()
            code, out = warm_client.run(box, "/bin/bash", ["-l", "-c", "echo hello"])
            assert (code, out) == (0, b"hello\n")
            warm_client.kill(box)

        times["e2e"].append(timed(whole)[0])
        time.sleep(0.03)  # the pool refills
    crun = median(times["crun"]) if times["crun"] else None
    for name in peers.commands:
        row(f"{name}: run /bin/true on the same root", ms(median(times[name])), "", "", f"p95 {ms(quantile(times[name], 0.95))}")
    for name, target in (("cold", 0.6), ("warm", 0.15)):
        value = median(times[name])
        ratio = f"{value / crun:.3f} x crun" if crun else "no crun"
        row(f"create to 201 through the gateway, {name}", ms(value), ratio, f"<= {target} x crun", f"p95 {ms(quantile(times[name], 0.95))}")
    row("create + run echo + kill, warm", ms(median(times["e2e"])), "", "< 15 ms, p99 < 60 ms", f"p99 {ms(quantile(times['e2e'], 0.99))}")


def bench_burst(cold, n=100):
    boxes, errors = [], []

    def one():
        try:
            client = Client(cold.port, cold.key)
            boxes.append(client.create())
            client.close()
        except Exception as e:  # counted, shown below
            errors.append(e)

    threads = [threading.Thread(target=one) for _ in range(n)]
    start = time.perf_counter()
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    total = time.perf_counter() - start
    row(f"burst of {n} creates at once, cold", ms(total), f"{len(boxes)} of {n} made", "< 1 s, all", str(errors[:1] or ""))
    client = Client(cold.port, cold.key)
    for box in boxes:
        client.kill(box)


def available():
    return int(re.search(r"MemAvailable: +(\d+)", Path("/proc/meminfo").read_text()).group(1)) * 1024


def bench_idle(cold, n):
    client = Client(cold.port, cold.key)
    time.sleep(1)
    before = available()
    boxes = [client.create() for _ in range(n)]
    time.sleep(1)
    used = (before - available()) / n
    answered = 0
    for box in boxes:
        status, _ = client.request("GET", "/health", headers=Client.box_headers(box))
        answered += status == 204
    private = []
    for smaps in Path("/proc").glob("[0-9]*/smaps_rollup"):
        try:
            if (smaps.parent / "comm").read_text().startswith("abx-guest"):
                text = smaps.read_text()
                private.append(sum(int(v) for v in re.findall(r"Private_(?:Clean|Dirty): +(\d+)", text)))
        except OSError:
            continue
    start = time.perf_counter()
    for box in boxes:
        client.kill(box)
    gone = time.perf_counter() - start
    row(f"{n} idle sandboxes: memory each", f"{used / 2**20:.2f} MiB", f"{answered} of {n} answer", "<= 1.2 MiB, all")
    row(f"{n} sandboxes killed one by one", ms(gone), "", "< 5 s")
    if private:
        row("guest (PID 1 or daemon): private memory", f"{max(private)} KiB", f"median {median(private)} KiB", "< 1024 KiB")


NOOP = r"""
#include <unistd.h>
int main(void) { return 0; }
"""
LOOP = r"""
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <sys/wait.h>
#include <unistd.h>
static int cmp(const void *a, const void *b) { double x = *(double *)a, y = *(double *)b; return (x > y) - (x < y); }
int main(void)
{
    static double t[400];
    for (int i = 0; i < 400; i++) {
        struct timespec a, b;
        int p[2], st; char c;
        clock_gettime(CLOCK_MONOTONIC, &a);
        if (pipe(p)) return 1;
        pid_t k = vfork();
        if (k == 0) { dup2(p[1], 1); close(p[0]); close(p[1]); execl("/tmp/noop", "noop", (char *)0); _exit(127); }
        close(p[1]);
        while (read(p[0], &c, 1) > 0) { }
        close(p[0]);
        waitpid(k, &st, 0);
        clock_gettime(CLOCK_MONOTONIC, &b);
        t[i] = (b.tv_sec - a.tv_sec) * 1e3 + (b.tv_nsec - a.tv_nsec) / 1e6;
    }
    qsort(t, 400, sizeof t[0], cmp);
    printf("%.4f\n", t[200]);
    return 0;
}
"""


def put(client, box, path, data):
    headers = [*Client.box_headers(box), "Content-Type: application/octet-stream"]
    client.sock.sendall(client.head("POST", f"/files?path={path}&username=user", headers, len(data)) + data)
    status, length, chunked = client.read_head()
    body = client.read_body(length, chunked)
    if status != 200:
        raise RuntimeError(f"upload: {status} {body!r}")


def bench_exec(cold):
    client = Client(cold.port, cold.key)
    box = client.create()
    for name, text in (("noop", NOOP), ("loop", LOOP)):
        put(client, box, f"/tmp/{name}.c", text.encode())
        code, out = client.run(box, "/bin/bash", ["-c", f"gcc -O2 -static -o /tmp/{name} /tmp/{name}.c 2>&1"])
        assert code == 0, out
    inside = float(client.run(box, "/tmp/loop", [])[1]) / 1e3
    times = []
    for _ in range(400):
        seconds, (code, _) = timed(client.run, box, "/tmp/noop", [])
        assert code == 0
        times.append(seconds)
    client.kill(box)
    row("run of a static no-op through gateway and guest", ms(median(times)), f"{ms(inside)} inside", "adds < 1 ms", f"adds {ms(median(times) - inside)}")


def loopback_copy(path, size):
    """Seconds of a plain TCP copy into a file at `path`; bytes from memory, 256 KiB a call."""
    server = socket.create_server(("127.0.0.1", 0))
    block = b"\0" * 262144

    def send():
        with socket.create_connection(server.getsockname()) as s:
            for _ in range(size // len(block)):
                s.sendall(block)

    start = time.perf_counter()
    sender = threading.Thread(target=send)
    sender.start()
    conn, _ = server.accept()
    buf = bytearray(262144)
    with open(path, "wb", buffering=0) as f:
        while n := conn.recv_into(buf):
            f.write(memoryview(buf)[:n])
    sender.join()
    conn.close()
    server.close()
    return time.perf_counter() - start


def bench_transfer(cold, size):
    client = Client(cold.port, cold.key)
    box = client.create()
    pool = cold.data_dir / "pool/fs/bench-copy"
    ups, downs, copies = [], [], []
    block = b"\0" * 262144

    def upload():
        headers = [*Client.box_headers(box), "Content-Type: application/octet-stream"]
        client.sock.sendall(client.head("POST", "/files?path=/home/user/big&username=user", headers, size))
        for _ in range(size // len(block)):
            client.sock.sendall(block)
        status, length, chunked = client.read_head()
        assert status == 200, client.read_body(length, chunked)
        client.read_body(length, chunked)

    def download():
        client.sock.sendall(client.head("GET", "/files?path=/home/user/big&username=user", Client.box_headers(box), None))
        status, length, chunked = client.read_head()
        assert status == 200
        if chunked:
            return len(client.read_body(length, True))
        got, client.buf, sink = len(client.buf), b"", bytearray(262144)
        while got < length:
            got += client.sock.recv_into(sink)
        return got

    for _ in range(3):
        copies.append(loopback_copy(pool, size))
        ups.append(timed(upload)[0])
        seconds, got = timed(download)
        assert got == size
        downs.append(seconds)
    pool.unlink()
    client.kill(box)
    plain = median(copies)
    for name, times in (("upload", ups), ("download", downs)):
        row(f"{name} of {size >> 20} MiB", f"{size / median(times) / 2**20:.0f} MiB/s", f"{plain / median(times):.2f} x plain copy",
            ">= 0.5 x plain TCP copy to the same file system")


def cgroups_of(service):
    """Groups of its instance, in whatever hierarchies there are."""
    name, found = f"abx-{service.instance()}", set()
    for line in Path("/proc/mounts").read_text().splitlines():
        if line.split()[2] in ("cgroup", "cgroup2"):
            found |= {at for at, _, _ in os.walk(line.split()[1]) if f"/{name}/" in f"{at}/"}
    return len(found)


def counts(service):
    """What must not grow: of the roles processes, fds and memory; files and folders (inodes, all of them, and folders alone)
    in the data dir with the pool and in the run dir; cgroups; what is left of the machine's memory."""
    pids = [p for ps in service.roles().values() for p in ps]
    fds = sum(len(os.listdir(f"/proc/{p}/fd")) for p in pids)
    rss = sum(int(re.search(r"VmRSS:\s+(\d+)", Path(f"/proc/{p}/status").read_text()).group(1)) for p in pids)
    trees = [(len(folders), len(files)) for top in (service.data_dir, Path("/run/abx") / service.instance())
             for _, folders, files in os.walk(top)]
    return {"roles": len(pids), "fds": fds, "rss_kib": rss, "inodes": sum(a + b for a, b in trees),
            "folders": sum(a for a, _ in trees), "cgroups": cgroups_of(service), "available_mib": available() >> 20}


def bench_cycles(cold, n):
    client = Client(cold.port, cold.key)

    def some(k):
        start = time.perf_counter()
        for _ in range(k):
            client.kill(client.create())
        return k / (time.perf_counter() - start)

    some(200)
    time.sleep(2)
    before = counts(cold)
    first = some(500)
    for _ in range(max(0, n - 1000) // 500):
        some(500)
    last = some(500)
    time.sleep(3)
    after = counts(cold)
    row(f"{n} create/kill cycles: rate", f"{last:.0f}/s at the end", f"{first:.0f}/s at the start", "same", f"{before} -> {after}")


def table():
    widths = [max(len(str(r[i])) for r in ROWS) for i in range(5)]
    for r in [("what", "ours", "peer or part", "target", "note"), *ROWS]:
        print("  ".join(str(r[i]).ljust(widths[i]) for i in range(5)).rstrip())


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--quick", action="store_true", help="fewer rounds")
    parser.add_argument("--only", default="create,burst,exec,transfer,idle,cycles", help="comma-separated parts")
    parser.add_argument("--cycles", type=int, default=2000, help="create/kill cycles (20000 for the full run)")
    args = parser.parse_args()
    only = args.only.split(",")
    build = Path(os.environ.get("ABX_BUILD", ROOT / "build"))
    listed = json.loads(subprocess.run([build / "abx", "template", "list", "--json"], capture_output=True, check=True).stdout)
    rootfs = next(Path(t["path"]) / "rootfs" for t in listed if t["name"] == "base")
    with Service(build, disk="40G") as cold, Service(build, "--pool", "base=16", disk="40G") as warm:
        if "create" in only:
            peers = Peers(rootfs, cold.data_dir / "bench")
            bench_create(cold, warm, peers, 40 if args.quick else 200)
            peers.close()
        if "burst" in only:
            bench_burst(cold)
        if "exec" in only:
            bench_exec(cold)
        if "transfer" in only:
            bench_transfer(cold, (256 if args.quick else 1024) << 20)
        if "idle" in only:
            bench_idle(cold, 200 if args.quick else 1000)
        if "cycles" in only:
            bench_cycles(cold, args.cycles)
    table()


if __name__ == "__main__":
    main()
