"""Starts `abx serve` for a test, talks to it with plain HTTP, and stops it without leftovers."""

import fcntl
import http.client
import json
import os
import select
import shutil
import signal
import subprocess
import tempfile
import time
from pathlib import Path

import processes
from waiting import BUSY_S, until

PREFIX, OWNER = "abx-test-", "owner-of-test"
# In the log: what loses track of a sandbox, and what finds it again.
LOSSES = ('"role ended', '"worker lost"', '"worker is stuck')
REPAIRS = ('"killing a sandbox without a row"', 'repaired="yes"')


def left_behind():
    """Data dirs that Service made in processes that are gone and did not come to removing them."""
    found = []
    for folder in Path(tempfile.gettempdir()).glob(PREFIX + "*"):
        try:
            pid, born = (folder / OWNER).read_text().split()
        except (FileNotFoundError, NotADirectoryError, ValueError):
            continue  # it is being made or removed, or is nobody's
        if processes.born(int(pid)) != born:
            found.append(folder)
    return found


def clean_up(build_dir, folder):
    """Ends the service of a data dir that was left behind, with its sandboxes, and removes both."""
    with open(folder / OWNER) as owner:
        try:
            fcntl.flock(owner, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return  # another one is at it
        for pid in processes.every():
            words = (processes.read(pid, "cmdline") or "").split("\0")
            if words[1:2] == ["serve"] and str(folder) in words:
                processes.send(pid, signal.SIGINT)
                processes.wait_gone([pid])
        service = Service(build_dir, data_dir=folder)
        service.own_dir = True
        # What a service leaves that was killed is known to its successor.
        with service:
            pass


class Service:
    """One `abx serve` on a free port with a data dir of its own.

    `args` are more options of serve. `start()` waits for the ready line; `stop()` sends SIGINT, which kills the
    sandboxes too, unless another signal is given. Use as a context manager, or call both.
    """

    def __init__(self, build_dir, *args, data_dir=None, env=None, disk="20G"):
        self.abx = Path(build_dir) / "abx"
        self.own_dir = data_dir is None
        self.data_dir = Path(data_dir or tempfile.mkdtemp(prefix=PREFIX))
        if self.own_dir:
            (self.data_dir / OWNER).write_text(f"{os.getpid()} {processes.born(os.getpid())}")
        self.args = ["--disk", disk, *args]
        # Not the machine's: there the users' own clients look.
        self.env = {**os.environ, "ABX_LOCAL_DIR": str(self.data_dir / "local-clients"), **(env or {})}
        self.env.pop("LD_PRELOAD", None)  # a sanitizer's, meant for a library in the tests' own process
        self.process = None
        self.origin = None
        self.port = None
        self.key = None
        self.log = None

    def start(self, timeout=BUSY_S):
        self.log = open(self.data_dir / "serve.log", "ab")
        self.process = subprocess.Popen(
            [self.abx, "serve", "--listen", f"127.0.0.1:{self.port or 0}", "--data-dir", self.data_dir, *self.args],
            stdout=subprocess.PIPE,
            stderr=self.log,
            env=self.env,
        )
        deadline = time.monotonic() + timeout
        text = b""
        while not (text.endswith(b"\n") and text.splitlines()[-1].startswith(b"ready ")):
            left = deadline - time.monotonic()
            if left <= 0 or not select.select([self.process.stdout], [], [], left)[0]:
                raise TimeoutError(f"not ready after {timeout} s:\n{self.logged()}")
            data = os.read(self.process.stdout.fileno(), 4096)
            if not data:
                raise RuntimeError(f"serve ended ({self.process.wait()}):\n{self.logged()}")
            text += data
        self.printed = text.decode().splitlines()
        self.origin = self.printed[-1].split(" ", 1)[1]
        self.port = int(self.origin.rsplit(":", 1)[1])
        self.key = (self.data_dir / "admin.key").read_text().strip()
        return self

    def instance(self):
        """Id of the data dir: names its folder below /run/abx."""
        return dict(line.split(" ", 1) for line in (self.data_dir / "format").read_text().splitlines())["instance"]

    def logged(self):
        return (self.data_dir / "serve.log").read_text(errors="replace")[-8000:]

    def log_of(self, words):
        """Lines of the log that hold one of the words, warnings and errors, with their neighbourhood's roles."""
        lines = (self.data_dir / "serve.log").read_text(errors="replace").splitlines()
        return "\n".join(x for x in lines if any(w in x for w in words) or " error " in x or "started again" in x)

    def client_env(self):
        """The variables that an E2B client needs."""
        return {"E2B_API_KEY": self.key, "E2B_API_URL": self.origin, "E2B_SANDBOX_URL": self.origin}

    def request(self, method, path, body=None, headers=None, timeout=BUSY_S):
        """(status, headers, decoded body) of one request with the admin key."""
        conn = http.client.HTTPConnection("127.0.0.1", self.port, timeout=timeout)
        try:
            data = None if body is None else json.dumps(body).encode()
            sent = {"X-API-Key": self.key, **({"Content-Type": "application/json"} if data else {}), **(headers or {})}
            conn.request(method, path, data, sent)
            answer = conn.getresponse()
            raw = answer.read()
            is_json = "json" in (answer.getheader("Content-Type") or "")
            return answer.status, answer.headers, json.loads(raw) if is_json and raw else raw
        finally:
            conn.close()

    def create(self, template="base", **body):
        status, _, made = self.request("POST", "/v2/sandboxes", {"templateID": template, **body})
        assert status == 201, (status, made)
        return made

    def kill(self, sandbox_id):
        return self.request("DELETE", f"/sandboxes/{sandbox_id}")[0]

    def run_abx(self, *args, timeout=BUSY_S):
        """One `abx` command on this service's data dir."""
        return subprocess.run(
            [self.abx, *args, "--data-dir", self.data_dir],
            capture_output=True,
            text=True,
            timeout=timeout,
            env=self.env,
        )

    def audit(self):
        """Findings of `abx doctor --audit`, a list of strings; why there was no audit (a role is away) is one too."""
        run = self.run_abx("doctor", "--audit", "--json")
        return json.loads(run.stdout)["findings"] if run.stdout else [run.stderr]

    def until_clean(self, may_repair=False):
        """Waits for an audit without findings: one that looks while something comes or goes may see half of it. What was left
        and has been removed meanwhile, every 30 s, is no less a fault, unless the test has made something of that kind."""
        until(lambda: not self.audit(), lambda: f"an audit without findings; there are {self.audit()}")
        assert may_repair or not (found := self.repairs()), found

    def repairs(self):
        """Lines of the log about what had to be removed because no one owned it. Where a process of the service was lost, that
        is as it should be, and nothing is told."""
        lines = (self.data_dir / "serve.log").read_text(errors="replace").splitlines()
        if sum('"engine ready"' in x for x in lines) > 1 or any(w in x for x in lines for w in LOSSES):
            return []
        return [x for x in lines if any(w in x for w in REPAIRS)]

    def roles(self):
        """{name: [pid]} of the running roles."""
        found = {}
        for pid in processes.every():
            if not (stat := processes.read(pid, "stat")):
                continue
            name, rest = stat.split("(", 1)[1].rsplit(")", 1)
            # Guests whose engine died are the supervisor's children too.
            if int(rest.split()[1]) == self.process.pid and name.startswith("abx-") and name != "abx-guest":
                found.setdefault(name, []).append(pid)
        return found

    def stop(self, sig=signal.SIGINT, timeout=BUSY_S):
        if self.process and self.process.poll() is None:
            self.process.send_signal(sig)
            try:
                self.process.wait(timeout)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
                raise
        if self.process:
            self.process.stdout.close()
            self.log.close()

    def remove(self):
        """Unmounts and removes a data dir that this object made."""
        subprocess.run(["umount", self.data_dir / "pool/fs"], stderr=subprocess.DEVNULL, check=False)
        if self.own_dir:
            shutil.rmtree(self.data_dir, ignore_errors=True)

    def __enter__(self):
        return self.start()

    def __exit__(self, *_):
        try:
            self.stop()
        finally:
            self.remove()
