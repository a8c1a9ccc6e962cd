"""`abx` as a user runs it, against one service or a fake: words in, status and bytes out."""

import json
import os
import pty
import select
import signal
import subprocess
import termios
import time
from pathlib import Path

import pytest
from service import Service

HIDDEN = ("ABX_", "E2B_", "ALICLOUD_", "ALIBABA_")


class Cli:
    """Runs build/abx with the variables of `env` and none of the caller's that name a service; HOME is `home`."""

    def __init__(self, build_dir, home, env):
        self.abx = str(Path(build_dir) / "abx")
        kept = {k: v for k, v in os.environ.items() if not k.startswith(HIDDEN) and k != "NO_COLOR"}
        self.env = {**kept, "HOME": str(home), "TERM": "xterm", "LC_ALL": "C.UTF-8", **env}
        self.home = home

    def popen(self, *args, env=None, **kwargs):
        kwargs.setdefault("stdin", subprocess.DEVNULL)
        kwargs.setdefault("stdout", subprocess.PIPE)
        kwargs.setdefault("stderr", subprocess.PIPE)
        return subprocess.Popen([self.abx, *args], env={**self.env, **(env or {})}, cwd=self.home, **kwargs)

    def run(self, *args, input=b"", timeout=120, env=None, status=None):
        """(status, stdout, stderr), the last two as bytes; `status` is what it has to be."""
        process = self.popen(*args, env=env, stdin=subprocess.PIPE)
        try:
            out, err = process.communicate(input, timeout)
        finally:
            process.kill()
            process.wait()
        if status is not None:
            assert process.returncode == status, (args, process.returncode, out[-2000:], err[-2000:])
        return process.returncode, out, err

    def text(self, *args, **kwargs):
        """Standard output of a command that has to succeed, without the last line feed."""
        return self.run(*args, status=0, **kwargs)[1].decode().removesuffix("\n")

    def json(self, *args, status=0, **kwargs):
        return json.loads(self.run(*args, "--json", status=status, **kwargs)[1])

    def terminal(self, *args, cols=80, rows=24, **kwargs):
        return Terminal(self, args, cols, rows, **kwargs)


class Terminal:
    """`abx` on a pseudo terminal of its own, as the leader of a session."""

    def __init__(self, cli, args, cols, rows, env=None):
        self.main, self.other = pty.openpty()
        termios.tcsetwinsize(self.other, (rows, cols))
        self.before = termios.tcgetattr(self.other)
        self.output = b""
        self.process = cli.popen(
            *args, env=env, stdin=self.other, stdout=self.other, stderr=self.other, start_new_session=True,
            preexec_fn=lambda: __import__("fcntl").ioctl(0, termios.TIOCSCTTY, 0),
        )

    def type(self, data):
        os.write(self.main, data)

    def resize(self, cols, rows):
        termios.tcsetwinsize(self.main, (rows, cols))

    def read_some(self, timeout):
        if not select.select([self.main], [], [], timeout)[0]:
            return False
        try:
            self.output += os.read(self.main, 65536)
        except OSError:
            return False
        return True

    def expect(self, text, timeout=60):
        """Until `text` was printed; everything up to it is taken off."""
        deadline = time.monotonic() + timeout
        while text not in self.output:
            left = deadline - time.monotonic()
            assert left > 0, (text, self.output)
            if not self.read_some(min(left, 1)) and self.process.poll() is not None:
                self.read_some(0.2)
                assert text in self.output, (text, self.output)
        at = self.output.index(text) + len(text)
        taken, self.output = self.output[:at], self.output[at:]
        return taken

    def wait(self, timeout=60):
        """The exit status; reads on meanwhile."""
        deadline = time.monotonic() + timeout
        while self.process.poll() is None:
            assert time.monotonic() < deadline, ("still runs", self.output)
            self.read_some(0.1)
        while self.read_some(0.1):
            pass
        return self.process.returncode

    def is_raw(self):
        return not termios.tcgetattr(self.other)[3] & (termios.ICANON | termios.ECHO | termios.ISIG)

    def is_restored(self):
        return termios.tcgetattr(self.other) == self.before

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        os.close(self.main)
        os.close(self.other)


__all__ = ["Cli", "Terminal", "signal"]


@pytest.fixture(scope="module")
def service(build_dir, base_template):
    with Service(build_dir) as running:
        yield running


@pytest.fixture(scope="module")
def cli(build_dir, service, tmp_path_factory):
    return Cli(build_dir, tmp_path_factory.mktemp("home"), service.client_env())


@pytest.fixture(scope="module")
def box(cli):
    made = cli.text("create", "--timeout", "1h")
    yield made
    cli.run("kill", made)
