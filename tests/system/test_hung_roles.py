"""Roles, or threads of them, that hang (stopped, not dead) under load: every call ends with an answer or a typed error, the watchdog has the role
started again, sandboxes live on, and nothing stays that no one owns.
"""

import http.client
import os
import signal
import sqlite3
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
from hang_thread import hang_thread
from service import Service
from waiting import BUSY_S, until

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

CALL_LIMIT_S = 60
ENVD = {"E2b-Sandbox-Port": "49983"}


class Load:
    """Clients that create, ask and kill sandboxes until they are stopped; what ends otherwise than it may is in `broken`."""

    def __init__(self, service, kept):
        self.service, self.kept = service, kept
        self.stopping = threading.Event()
        self.broken, self.ends, self.lock = [], {}, threading.Lock()
        self.slowest = 0

    def call(self, method, path, body=None, headers=None):
        """(status or the name of the connection's error, decoded body or None)."""
        begun, text = time.monotonic(), None
        try:
            status, answered, text = self.service.request(method, path, body, headers, timeout=2 * CALL_LIMIT_S)
            end = status
            if status in (429, 502, 503, 504) and "Should-Retry" not in answered:
                self.note(f"{method} {path}: {status} without Should-Retry: {text!r}")
            if status >= 500 and status not in (502, 503, 504, 507):
                self.note(f"{method} {path}: {status} {text!r}")
        except TimeoutError as e:
            end = type(e).__name__
            self.note(f"{method} {path}: no answer")
        except (ConnectionError, OSError) as e:
            end = type(e).__name__
        except http.client.HTTPException as e:
            end = type(e).__name__
        except Exception as e:
            end = type(e).__name__
            self.note(f"{method} {path}: {e!r}")
        took = time.monotonic() - begun
        with self.lock:
            self.ends[end] = self.ends.get(end, 0) + 1
            self.slowest = max(self.slowest, took)
        if took > CALL_LIMIT_S:
            self.note(f"{method} {path}: took {took:.1f} s ({end})")
        return end, text

    def note(self, text):
        with self.lock:
            self.broken.append(text)

    def rounds(self, number):
        while not self.stopping.is_set():
            box = self.kept[number % len(self.kept)]["sandboxID"]
            end, _ = self.call("GET", "/health", headers={"E2b-Sandbox-Id": box, **ENVD})
            if isinstance(end, int) and end not in (204, 502, 503, 504):
                self.note(f"a living sandbox answers {end}")
            if number % 2:
                end, made = self.call("POST", "/v2/sandboxes", {"templateID": "base", "timeout": 60})
                if end == 201:
                    self.call("DELETE", "/sandboxes/" + made["sandboxID"])
            else:
                self.call("GET", "/v2/sandboxes")


def end_all(service):
    """Ends every sandbox, then expects that the audit finds nothing."""
    for box in service.request("GET", "/v2/sandboxes")[2]:
        assert service.kill(box["sandboxID"]) in (204, 404)
    service.until_clean()


def is_healthy(service, box):
    return service.request("GET", "/health", headers={"E2b-Sandbox-Id": box["sandboxID"], **ENVD})[0] == 204


@pytest.mark.parametrize("name, thread", [("abx-control", None), ("abx-engine", None), ("abx-gateway", None),
                                          ("abx-control", "abx-store"), ("abx-control", "abx-checkpoint"),
                                          ("abx-engine", "abx-sockets")])
def test_a_hung_role_is_started_again_and_no_call_waits_for_it(build_dir, base_template, name, thread):
    """The whole process stands still, or one thread of it while its loop goes on."""
    with Service(build_dir) as service:
        kept = [service.create(timeout=600) for _ in range(2)]
        load = Load(service, kept)
        with ThreadPoolExecutor(8) as pool:
            clients = [pool.submit(load.rounds, i) for i in range(8)]
            try:
                until(lambda: sum(load.ends.values()) > 20, "load")
                pid = service.roles()[name][0]
                if thread:
                    hang_thread(pid, thread)
                else:
                    os.kill(pid, signal.SIGSTOP)
                until(lambda: pid not in service.roles().get(name, []), "its end")
                until(lambda: len(service.roles().get(name, [])) >= 1, "its successor")
                until(lambda: load.call("GET", "/v2/sandboxes")[0] == 200, "an answer")
            finally:
                load.stopping.set()
        for client in clients:
            client.result()
        print(f"ends {load.ends}, slowest {load.slowest:.1f} s")
        assert load.broken == [], service.logged()
        log = (service.data_dir / "serve.log").read_text(errors="replace")
        assert log.count("role hangs, killing it") == 1 and f'name="{name}" pid="{pid}"' in log
        assert f'why="no heartbeat {f"of {thread} " if thread else ""}for ' in log
        until(lambda: all(is_healthy(service, box) for box in kept), "the sandboxes from before")
        end_all(service)


def test_a_locked_database_is_no_hung_control(build_dir, base_template):
    """Somebody has a transaction open in it: every write fails after its 5 s, and control is no role that hangs."""
    with Service(build_dir, "--gateways", "1") as service:
        before = service.roles()["abx-control"]
        db = sqlite3.connect(service.data_dir / "control/abx.db", isolation_level=None, timeout=BUSY_S)
        db.execute("BEGIN IMMEDIATE")
        with ThreadPoolExecutor(6) as pool:
            creates = [pool.submit(service.request, "POST", "/v2/sandboxes", {"templateID": "base", "timeout": 60}, None, 100)
                       for _ in range(6)]
            time.sleep(16)  # longer than the watchdog's limit
            db.execute("ROLLBACK")
            db.close()
            assert {call.result()[0] for call in creates} <= {201, 429, 503}
        until(lambda: service.create(timeout=60), "an answer")
        assert service.roles()["abx-control"] == before
        end_all(service)


def test_a_stopped_service_does_not_kill_its_roles(build_dir, base_template):
    """Supervisor and roles stand still for longer than the limit, as on a machine that was suspended: nobody is to blame."""
    with Service(build_dir, "--gateways", "1") as service:
        box = service.create(timeout=600)
        before = service.roles()
        everyone = [service.process.pid, *sum(before.values(), [])]
        for pid in everyone:
            os.kill(pid, signal.SIGSTOP)
        time.sleep(14)
        for pid in reversed(everyone):
            os.kill(pid, signal.SIGCONT)
        until(lambda: is_healthy(service, box), "an answer")
        time.sleep(3)  # a supervisor that took the time for silence would have killed by now
        assert service.roles() == before
        end_all(service)
