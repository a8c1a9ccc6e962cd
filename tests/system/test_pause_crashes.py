"""Nothing is lost by pauses while the service's processes are killed, one after the other and all of them, and while the disk
is full; every request gets an answer."""

import os
import random
import subprocess
import threading
import time

import processes
import pytest
from envd import Envd
from pause_kit import detail, events, kill_role, listed, pool_of, through
from service import Service
from waiting import until

# Every host process of the service. `serve` is the supervisor, and with it all others; it is started again.
PROCESSES = ("abx-engine", "abx-control", "abx-gateway", "abx-egress", "serve")

MANIFEST = "cd /home/user/data && find . -type f -print0 | sort -z | xargs -0 sha256sum; find . -printf '%p %m %U %s\\n' | sort"

WRITER = """
import mmap, os, sys
d = "/home/user/data"
os.makedirs(d, exist_ok=True)
held = open(d + "/held", "ab", buffering=0)
shared = os.open(d + "/shared", os.O_RDWR | os.O_CREAT)
os.ftruncate(shared, 1 << 16)
m = mmap.mmap(shared, 1 << 16)
removed = open(d + "/removed", "w+b", buffering=0)
os.unlink(d + "/removed")
for line in sys.stdin:
    i = int(line)
    held.write(b"%d\\n" % i)
    removed.write(b"%d " % i)
    m[i * 8:i * 8 + 8] = b"%08d" % i
    with open("%s/synced-%d" % (d, i), "wb") as f:
        f.write(os.urandom(50000)); f.flush(); os.fsync(f.fileno())
    with open("%s/not-%d" % (d, i), "wb") as f:
        f.write(os.urandom(50000))
    print("written", i, os.pread(removed.fileno(), 1000, 0).decode(), flush=True)
"""


class Cycles:
    """One sandbox with a process that holds files open and mapped, written to before each pause."""

    def __init__(self, service, with_memory):
        self.service, self.with_memory = service, with_memory
        self.box = service.create(timeout=600, autoPause=True, autoPauseMemory=with_memory)
        self.envd = Envd(service, self.box)
        self.envd.write("/tmp/writer.py", WRITER.encode())
        self.begin = 0  # cycle in which the writer that runs began
        self.start_writer()

    def sh(self, command, timeout=60):
        return through(lambda: self.envd.sh(command, timeout))

    def start_writer(self):
        self.envd.sh("rm -f /tmp/in /tmp/out; mkfifo /tmp/in; "
                     "nohup sh -c 'exec 3<>/tmp/in; exec python3 /tmp/writer.py <&3' >/tmp/out 2>&1 & echo $! > /tmp/pid")

    def write(self, i):
        self.envd.sh(f"echo {i} > /tmp/in; for n in $(seq 600); do grep -q 'written {i} ' /tmp/out && exit; sleep 0.1; done; exit 1", 90)

    def identity(self):
        """What stays the same when memory is kept, and only then."""
        return self.sh("cat /proc/sys/kernel/random/boot_id; pid=$(cat /tmp/pid); echo $pid; cut -d' ' -f22 /proc/$pid/stat; "
                       "ls -l /proc/$pid/fd | grep -c data/; grep -c data/shared /proc/$pid/maps")

    def ask(self, what, body, *expected):
        """Until the service is back and has done it."""
        def once():
            status, _, answer = self.service.request("POST", f"/sandboxes/{self.box['sandboxID']}/{what}", body, timeout=60)
            assert status in (*expected, 502, 503, 504), (what, status, answer)
            return status in expected
        until(lambda: through(once))

    def pause(self, by_timeout):
        if by_timeout:
            self.ask("timeout", {"timeout": 1}, 204)
        else:
            # 409: it was done, and the answer was lost.
            self.ask("pause", None if self.with_memory else {"memory": False}, 204, 409)
        until(lambda: through(lambda: detail(self.service, self.box))["state"] == "paused")

    def cycle(self, i, kill):
        self.write(i)
        before, was = self.sh(MANIFEST), self.identity()
        kill()
        self.pause(by_timeout=i % 2 == 1)
        kill()
        info = through(lambda: detail(self.service, self.box))
        assert (info["state"], info["pauseMode"]) == ("paused", "full" if self.with_memory else "filesystem")
        self.ask("connect", {"timeout": 600}, 200, 201)
        kill()
        assert self.sh(MANIFEST) == before, f"cycle {i}"
        if self.with_memory:
            assert self.identity() == was
            return
        assert self.sh("cat /proc/sys/kernel/random/boot_id") != was.splitlines()[0] + "\n"
        self.start_writer()
        self.begin = i + 1

    def check_end(self, n):
        """Each cycle's write by the file that was held open, the map and the file without a name has come."""
        assert self.sh("cat /home/user/data/held").split() == [str(i) for i in range(n)]
        assert self.sh("cat /home/user/data/shared | tr -d '\\0'") == "".join(f"{i:08d}" for i in range(n))
        if self.with_memory:
            assert self.sh("tail -n 1 /tmp/out").split() == ["written", str(n - 1), *(str(i) for i in range(n))]
        modes = [data["mode"] for kind, data in events(self.service, self.box) if kind == "paused"]
        assert modes == ["full" if self.with_memory else "filesystem"] * n


@pytest.mark.parametrize("cycles", [pytest.param(5, marks=pytest.mark.slow), pytest.param(20, marks=pytest.mark.long)])
@pytest.mark.parametrize("with_memory", [True, False], ids=["full", "filesystem"])
def test_cycles_with_every_host_process_killed_in_between(build_dir, base_template, with_memory, cycles):
    with Service(build_dir) as s:
        c = Cycles(s, with_memory)
        killed = []

        def kill():  # in five cycles each of them at each of the three places
            killed.append(PROCESSES[(len(killed) // 3 + len(killed) % 3) % len(PROCESSES)])
            kill_role(s, killed[-1])

        for i in range(cycles):
            c.cycle(i, kill)
        c.check_end(cycles)
        assert set(killed) == set(PROCESSES) and len(killed) == 3 * cycles
        until(lambda: through(lambda: s.kill(c.box["sandboxID"])) in (204, 404))
        s.until_clean()


def overlap(service, boxes, rounds, seed, statuses, kills=0.15):
    """Threads that ask for everything at once; counts the answers by what was asked and status. What was killed is replaced."""
    rng, lock, created = random.Random(seed), threading.Lock(), list(boxes)
    paths = {"files": ("pause", {"memory": False}), "pause": ("pause", None)}

    def ask(what, sandbox):
        path, body = paths.get(what, (what, {"timeout": 300}))
        method, path = ("DELETE", "") if what == "kill" else ("POST", f"/{path}")
        return through(lambda: service.request(method, f"/sandboxes/{sandbox}{path}", body if path else None, timeout=60)[0])

    def work(seed):
        own = random.Random(seed)
        for _ in range(rounds):
            what = own.choice(["pause", "files", "connect", "connect", "resume", "timeout", "kill" if own.random() < kills else "pause"])
            with lock:
                sandbox = own.choice(created)
            status = ask(what, sandbox)
            with lock:
                statuses[what, status] = statuses.get((what, status), 0) + 1
            if what == "kill" and status == 204:
                status, _, new = through(lambda: service.request("POST", "/v2/sandboxes", {"templateID": "base", "timeout": 300}, timeout=60))
                with lock:
                    assert status == 201, new
                    created[created.index(sandbox)] = new["sandboxID"]

    threads = [threading.Thread(target=work, args=(rng.random(),)) for _ in range(8)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    return created


ASKED = {"pause", "files", "connect", "resume", "timeout", "kill"}


def check_all(service, created):
    """None of them is lost, and nothing is left of them in the end."""
    for sandbox in created:
        until(lambda sandbox=sandbox: service.request("POST", f"/sandboxes/{sandbox}/connect", {"timeout": 300}, timeout=60)[0] in (200, 201))
        assert through(lambda sandbox=sandbox: Envd(service, detail(service, {"sandboxID": sandbox})).sh("echo up")) == "up\n"
        assert service.kill(sandbox) == 204
    for sandbox in listed(service):  # made for a client whose gateway was killed
        service.kill(sandbox)
    until(lambda: service.audit() == [] and not list((pool_of(service) / "saved").iterdir()))


@pytest.mark.parametrize("n, rounds", [(4, 15), pytest.param(50, 1250, marks=pytest.mark.long)])
def test_overlapping_requests_are_all_answered_and_leave_nothing(build_dir, base_template, n, rounds):
    with Service(build_dir) as s:
        statuses = {}
        created = overlap(s, [s.create(timeout=300)["sandboxID"] for _ in range(n)], rounds, n, statuses)
        assert {status for _, status in statuses} <= {200, 201, 204, 404, 409}, statuses
        assert {what for what, _ in statuses} == ASKED
        check_all(s, created)


class Killer(threading.Thread):
    """Kills engines again and again until it is told to stop."""

    def __init__(self, service, pause):
        super().__init__(daemon=True)
        self.service, self.pause, self.is_over, self.n = service, pause, threading.Event(), 0

    def run(self):
        while not self.is_over.wait(self.pause):
            self.n += sum(processes.send(pid) for pid in self.service.roles().get("abx-engine", []))

    def stop(self):
        self.is_over.set()
        self.join()


@pytest.mark.slow
def test_overlapping_requests_for_one_sandbox_while_the_engine_is_killed(build_dir, base_template):
    with Service(build_dir) as s:
        box = s.create(timeout=300)
        Envd(s, box).sh("echo mine > /home/user/f")
        statuses, lock, killer = {}, threading.Lock(), Killer(s, 0.4)

        def work(seed):
            own = random.Random(seed)
            deadline = time.monotonic() + 120
            while killer.n < 6 and time.monotonic() < deadline:
                what, body = own.choice([("pause", None), ("pause", {"memory": False}), ("connect", {"timeout": 300}), ("resume", {"timeout": 300}),
                                         ("timeout", {"timeout": 300})])
                status = s.request("POST", f"/sandboxes/{box['sandboxID']}/{what}", body, timeout=60)[0]
                with lock:
                    statuses[what, status] = statuses.get((what, status), 0) + 1

        threads = [threading.Thread(target=work, args=(i,)) for i in range(6)]
        killer.start()
        try:
            for t in threads:
                t.start()
            for t in threads:
                t.join()
        finally:
            killer.stop()
        # 404: a time is set of a paused one. 503, 504: the engine was away.
        assert killer.n >= 6 and {status for _, status in statuses} <= {200, 201, 204, 404, 409, 503, 504}, statuses
        assert ("pause", 204) in statuses, statuses
        until(lambda: s.request("POST", f"/sandboxes/{box['sandboxID']}/connect", {"timeout": 300}, timeout=60)[0] in (200, 201))
        assert through(lambda: Envd(s, box).sh("cat /home/user/f")) == "mine\n"
        # A kill among them wins, whatever is under way.
        for pid in s.roles()["abx-engine"]:
            processes.send(pid)
        waiting = [threading.Thread(target=s.request, args=("POST", f"/sandboxes/{box['sandboxID']}/pause")) for _ in range(3)]
        for t in waiting:
            t.start()
        until(lambda: s.kill(box["sandboxID"]) in (204, 404))
        for t in waiting:
            t.join()
        until(lambda: s.audit() == [] and not list((pool_of(s) / "saved").iterdir()))


class Filler(threading.Thread):
    """Takes all that is left of the pool, again and again."""

    def __init__(self, folder):
        super().__init__(daemon=True)
        self.path, self.is_over, self.n_full = folder / "ballast", threading.Event(), 0

    def run(self):
        with open(self.path, "wb", buffering=0) as f:
            while not self.is_over.is_set():
                try:
                    f.write(bytes(1 << 20))
                    os.fsync(f.fileno())
                except OSError:
                    self.n_full += 1
                    self.is_over.wait(0.05)
        self.path.unlink()

    def stop(self):
        self.is_over.set()
        self.join()


@pytest.mark.slow
def test_overlapping_requests_while_the_disk_is_full_and_the_engine_is_killed(build_dir, base_template):
    with Service(build_dir, disk="512M") as s:
        statuses = {}
        boxes = [s.create(timeout=300) for _ in range(4)]
        for box in boxes:
            Envd(s, box).sh("echo mine > /home/user/f")
        killer, filler = Killer(s, 0.7), Filler(pool_of(s))
        try:
            filler.start()
            until(lambda: filler.n_full > 0)
            killer.start()
            deadline = time.monotonic() + 120
            while killer.n < 4:
                assert time.monotonic() < deadline
                overlap(s, [b["sandboxID"] for b in boxes], 10, len(statuses), statuses, kills=0)
            for box in boxes[2:]:
                until(lambda box=box: through(lambda: s.kill(box["sandboxID"])) in (204, 404))
        finally:
            filler.stop()
            killer.stop()
        subprocess.run(["sync", "-f", pool_of(s)], check=False)
        assert {status for _, status in statuses} <= {200, 201, 204, 404, 409, 503, 504, 507}, statuses
        assert {("pause", 204), ("connect", 201)} <= set(statuses), statuses
        for box in boxes[:2]:
            until(lambda box=box: s.request("POST", f"/sandboxes/{box['sandboxID']}/connect", {"timeout": 300}, timeout=60)[0] in (200, 201))
            assert through(lambda box=box: Envd(s, box).sh("cat /home/user/f")) == "mine\n"
        check_all(s, [b["sandboxID"] for b in boxes[:2]])
