"""What tests of paused sandboxes share: requests, looks at the service's own files, and ends of host processes."""

import http.client
import os
import signal
from pathlib import Path

import processes
import pytest
from envd import EnvdError
from service import Service
from waiting import again, until


def through(function):
    """Through gateways and engines that are killed now and then: until it works."""
    return again(function, (OSError, http.client.HTTPException, EnvdError))


def post(service, box, what, body=None, expect=204):
    status, _, answer = service.request("POST", f"/sandboxes/{box['sandboxID']}/{what}", body, timeout=60)
    assert status == expect, (status, answer)
    return answer


def detail(service, box):
    status, _, answer = service.request("GET", f"/sandboxes/{box['sandboxID']}")
    assert status == 200, answer
    return answer


def listed(service, query=""):
    return [b["sandboxID"] for b in service.request("GET", f"/v2/sandboxes{query}")[2]]


def events(service, box):
    """(type's last word, data) of the sandbox's events, oldest first."""
    found = service.request("GET", f"/events/sandboxes/{box['sandboxID']}?orderAsc=true&limit=100")[2]
    return [(e["type"].rsplit(".", 1)[1], e["eventData"]) for e in found]


def health(service, box):
    """Status and decoded body of GET /health, as clients ask whether it runs."""
    headers = {"E2b-Sandbox-Id": box["sandboxID"], "E2b-Sandbox-Port": "49983", "X-Access-Token": box.get("envdAccessToken") or "",
               "X-API-Key": ""}
    return service.request("GET", "/health", headers=headers)[::2]


def guests(instance):
    """Host pids of all processes of sandboxes of an instance."""
    found = []
    for pid in processes.every():
        group = processes.read(pid, "cgroup") or ""
        if f"abx-{instance}" in group and "/sandboxes/" in group:
            found.append(pid)
    return found


def pool_of(service):
    """Where uppers/ and saved/ are."""
    pool = service.data_dir / "pool"
    return pool / "fs" if (pool / "fs/uppers").exists() else pool


def notes(service):
    """{sandbox id: name of its upper} of what is noted as kept."""
    return {f.name.split(".")[1]: f.name.split(".")[0] for f in (pool_of(service) / "saved").glob("*.*")}


def records(service):
    return Path("/run/abx") / service.instance() / "sandboxes"


def kill_guests(service):
    for pid in guests(service.instance()):
        processes.send(pid)
    until(lambda: not guests(service.instance()))


def kill_role(service, role, meanwhile=None):
    """SIGKILL for all processes of a role; waits for their successors. `serve` is the supervisor: all roles end with it."""
    if role == "serve":
        service.process.send_signal(signal.SIGKILL)
        service.process.wait()
        until(lambda: not service.roles())
        if meanwhile:
            meanwhile()
        service.stop()
        service.start()
        return
    before = service.roles().get(role, [])
    for pid in before:
        processes.send(pid)
    if meanwhile:
        meanwhile()
    until(lambda: (now := service.roles().get(role, [])) and not set(now) & set(before))


def start_machine_anew(service):
    """What a reboot leaves: files. Every process ends and the run dir is empty."""
    instance = service.instance()

    def rest():
        kill_guests(service)
        for record in os.listdir(f"/run/abx/{instance}/sandboxes"):
            os.unlink(f"/run/abx/{instance}/sandboxes/{record}")

    kill_role(service, "serve", rest)


@pytest.fixture(scope="module")
def service(build_dir, base_template):
    """One for the whole file; nothing may be left in the end."""
    with Service(build_dir) as s:
        yield s
        for box in s.request("GET", "/v2/sandboxes")[2]:
            s.kill(box["sandboxID"])
        for snapshot in s.request("GET", "/snapshots")[2]:
            s.request("DELETE", f"/templates/{snapshot['snapshotID']}")
        s.until_clean()
