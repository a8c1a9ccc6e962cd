"""Host processes are killed at random while many clients work: nothing is lost, nothing stays.

The clients are the official Python SDK. Rules: every call ends with a result or a typed error within its time; a
sandbox that was created and not killed is never reported as gone; afterwards each listed sandbox answers, and once
those are killed the audit finds nothing that no one owns.
"""

import random
import re
import signal
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import e2b
import httpx
import processes
import pytest
from connectrpc.errors import ConnectError
from service import Service
from waiting import BUSY_S

pytestmark = pytest.mark.alone

CALL_LIMIT_S = 30
# What the SDK raises for a connection that was cut or refused, besides its own types.
TYPED = (
    e2b.SandboxException, e2b.exceptions.ServiceBusyException, TimeoutError, ConnectionError, httpx.TransportError, ConnectError)


def is_gone(error):
    """Does this error tell the user that the sandbox does not exist?"""
    text = str(error).lower()
    return isinstance(error, e2b.NotFoundException) or "was not found" in text or "doesn't exist" in text


class Chaos(threading.Thread):
    """Kills one random role every few hundred milliseconds; with `supervisor`, now and then all of them at once."""

    def __init__(self, service, supervisor):
        super().__init__(daemon=True)
        self.service, self.supervisor = service, supervisor
        self.stopping = threading.Event()
        self.killed = {}
        self.failure = None

    def run(self):
        try:
            while not self.stopping.wait(random.uniform(0.1, 0.4)):
                if self.supervisor and random.random() < 0.1:
                    self.service.stop(signal.SIGKILL)
                    self.service.start()
                    self.killed["supervisor"] = self.killed.get("supervisor", 0) + 1
                    continue
                roles = [(name, pid) for name, pids in self.service.roles().items() for pid in pids]
                if not roles:
                    continue
                name, pid = random.choice(roles)
                if not processes.send(pid):
                    continue
                self.killed[name] = self.killed.get(name, 0) + 1
        except Exception as e:
            self.failure = e

    def stop(self):
        self.stopping.set()
        self.join(120)
        assert self.failure is None, self.failure


class Report:
    def __init__(self):
        self.lock = threading.Lock()
        self.results, self.errors, self.broken = 0, {}, []

    def boxes(self):
        """Ids of sandboxes with which something was wrong."""
        return set(re.findall(r"\bi[a-z0-9]{20}\b", " ".join(self.broken)))

    def call(self, what, fn, live, box=""):
        """Runs one call; True if it gave a result. `live`: the sandbox was made and nobody killed it."""
        start = time.monotonic()
        error = None
        try:
            result = fn()
        except TYPED as e:
            error = e
        except Exception as e:
            with self.lock:
                self.broken.append(f"{what}: not a typed error: {type(e).__module__}.{type(e).__name__}: {e}")
            return None
        took = time.monotonic() - start
        with self.lock:
            if took > 3 * CALL_LIMIT_S:  # the client has its own limits, and the machine other work
                self.broken.append(f"{what}: took {took:.1f} s ({error!r})")
            if error is not None and live and is_gone(error):
                self.broken.append(f"{what}: a live sandbox was reported as gone: {box}: {error!r}")
            if error is None:
                self.results += 1
            else:
                name = f"{what}: {type(error).__name__}"
                self.errors[name] = self.errors.get(name, 0) + 1
        return result if error is None else None


def one_round(report, options):
    def create():
        return report.call("create", lambda: e2b.Sandbox.create(timeout=300, request_timeout=CALL_LIMIT_S, **options), False)

    deadline = time.monotonic() + 2 * BUSY_S
    while (box := create()) is None:  # again, or the rounds would be over before a dead supervisor is back
        if time.monotonic() > deadline:
            return
        time.sleep(0.2)
    for i in range(2):
        out = report.call(
            "run", lambda: box.commands.run(f"echo {i}", timeout=CALL_LIMIT_S, request_timeout=CALL_LIMIT_S).stdout, True,
            box.sandbox_id)
        if out is not None and out != f"{i}\n":
            with report.lock:
                report.broken.append(f"run: wrong output {out!r}")
    report.call("kill", lambda: box.kill(request_timeout=CALL_LIMIT_S), True, box.sandbox_id)


def chaos_run(build_dir, rounds, at_once, supervisor):
    service = Service(build_dir, "--pool", "base=4")
    report = Report()
    try:
        service.start()
        options = {"api_key": service.key, "api_url": service.origin, "sandbox_url": service.origin}
        chaos = Chaos(service, supervisor)
        chaos.start()
        until, more = time.monotonic() + 120, rounds
        while more:
            with ThreadPoolExecutor(at_once) as pool:
                for _ in range(more):
                    pool.submit(one_round, report, options)
            # On a busy machine who kills may get little of it.
            more = at_once if sum(chaos.killed.values()) < 5 and time.monotonic() < until else 0
        chaos.stop()
        print(f"{report.results} results, errors {report.errors}, killed {chaos.killed}")
        assert report.broken == []
        assert sum(chaos.killed.values()) >= 5
        assert report.results >= rounds, "most calls are to succeed"

        left = service.request("GET", "/v2/sandboxes")[2]
        for box in left:
            health = service.request(
                "GET", "/health", headers={"E2b-Sandbox-Id": box["sandboxID"], "E2b-Sandbox-Port": "49983"})
            assert health[0] == 204, (box, health)
            assert service.kill(box["sandboxID"]) == 204
        service.until_clean()
    finally:
        print(service.log_of(report.boxes()))
        service.stop()
        service.remove()


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_roles_killed_at_random(build_dir, base_template):
    chaos_run(build_dir, rounds=150, at_once=8, supervisor=False)


@pytest.mark.slow
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("rounds", [150, pytest.param(500, marks=pytest.mark.long)])
def test_roles_and_supervisor_killed_at_random(build_dir, base_template, rounds):
    chaos_run(build_dir, rounds=rounds, at_once=20, supervisor=True)
