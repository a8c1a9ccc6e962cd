"""The calls of guest.py into a sandbox of a real service, through its gateway."""

import os
from pathlib import Path

import processes
import pytest
from sanitizers import resident_kib

from guest import Guest


class Remote(Guest):
    """A sandbox of `service` that is made here and killed by close(), or the given one; `user` asks when a call names none."""

    def __init__(self, service, box=None, user=None, **create):
        self.service, self.port = service, service.port
        self.box = box or service.create(timeout=3600, **create)
        self.id, self.token = self.box["sandboxID"], self.box["envdAccessToken"]
        self.user = user
        self.namespace = None

    def close(self):
        assert self.service.kill(self.id) == 204

    def connection(self, rcvbuf=None):
        connection = super().connection(rcvbuf)
        connection.timeout = 60
        return connection

    def headers(self, content_type=None, user=None):
        where = {"E2b-Sandbox-Id": self.id, "E2b-Sandbox-Port": "49983"}
        return where | super().headers(content_type, user or self.user)

    def http(self, method, target, body=None, headers=None, token=True):
        where = self.headers()
        if not token:
            del where["X-Access-Token"]
        return super().http(method, target, body, where | (headers or {}), token=False)

    def inside(self, script, user="root"):
        """stdout of a shell script that must succeed."""
        result = self.sh(script, user=user)
        assert result["code"] == 0, result
        return result["stdout"].decode()

    def names(self):
        """Programs inside that are not the service's, sorted."""
        own = "/proc/[0-9]*"
        out = self.inside(f'for p in {own}; do [ "$p" = /proc/$$ ] || cat $p/comm 2>/dev/null; done; true')
        return sorted(n for n in out.split("\n") if n and n not in ("abx-guest", "abx-supervisor", "cat"))

    def daemon(self):
        """Host pid of the daemon: looked at from outside, so that looking changes nothing."""
        if self.namespace is None:
            self.namespace = self.inside("readlink /proc/self/ns/net").strip()
        for comm in Path("/proc").glob("[0-9]*/comm"):
            try:
                if comm.read_text() != "abx-guest\n" or (comm.parent / "cmdline").read_bytes() != b"abx-guest\0daemon\0":
                    continue
                if os.readlink(comm.parent / "ns/net") == self.namespace:
                    return int(comm.parent.name)
            except OSError:
                pass
        raise AssertionError("no daemon")

    def has_daemon(self, pid):
        """Whether the daemon with that host pid lives."""
        try:
            return "\nState:\tZ" not in Path(f"/proc/{pid}/status").read_text()
        except OSError:
            return False

    def daemon_state(self):
        """(host pid, open files, inotify instances among them, resident KiB) of the daemon."""
        pid = self.daemon()
        files = list(processes.files(pid).values())
        return pid, len(files), files.count("anon_inode:inotify"), resident_kib(pid)


def usage(service):
    """{role: (pids, open files, resident KiB)} of a service's processes, summed over those of one name."""
    found = {}
    for name, pids in service.roles().items():
        fds = sum(len(os.listdir(f"/proc/{pid}/fd")) for pid in pids)
        found[name] = (sorted(pids), fds, sum(map(resident_kib, pids)))
    return found


@pytest.fixture(scope="module")
def box(service):
    remote = Remote(service)
    yield remote
    remote.close()
