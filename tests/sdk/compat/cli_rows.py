"""Every command of the official command line that asks a server, once. rows.py says what is printed.

usage: cli_rows.py NODE E2B [ROW...]      NODE: the interpreter, E2B: the command line's file; E2B_* in the environment
"""

import asyncio
import os
import pty
import re
import select
import subprocess
import sys
import tempfile
import time

from rows import Rows, run

NODE, E2B = sys.argv[1:3]
ID = re.compile(r"\bi[a-z0-9]{20}\b")
row = Rows()


class CommandError(Exception):
    """The command said why it cannot and ended with an exit code."""


CommandError.__module__ = "e2b"


def e2b(*args, check=True, stdin=None, cwd=None):
    done = subprocess.run([NODE, E2B, *args], capture_output=True, text=True, timeout=100, input=stdin or "", cwd=cwd)
    if check and done.returncode != 0:
        raise CommandError(f"exit code {done.returncode}: {(done.stdout + done.stderr)[-1500:]}")
    return done


def in_terminal(*args, typed, until):
    """Runs a command on a terminal, types when it printed something, and waits for its end; all that it printed."""
    pid, master = pty.fork()
    if pid == 0:
        os.execv(NODE, [NODE, E2B, *args])
    text, end, is_typed, gone = b"", time.monotonic() + 100, False, False
    try:
        while time.monotonic() < end and not gone:
            if select.select([master], [], [], 0.2)[0]:
                try:
                    text += os.read(master, 4096)
                except OSError:
                    gone = True
            elif text and not is_typed and b"$" in text:
                os.write(master, typed)
                is_typed = True
    finally:
        os.close(master)
        if not gone:
            os.kill(pid, 9)
        os.waitpid(pid, 0)
    assert gone and until in text, text[-2000:]
    return text.decode(errors="replace")


class Context:
    def __init__(self):
        self.made = []

    def create(self, *args):
        made = e2b("sandbox", "create", "base", "--detach", *args)
        self.made.append(ID.search(made.stdout + made.stderr).group())
        return self.made[-1]


@row("sandbox.create (detached)", "sandbox.kill")
async def _(x):
    box = x.create()
    e2b("sandbox", "kill", box)
    assert box not in e2b("sandbox", "list").stdout


@row("sandbox.create (terminal)")
async def _(x):
    text = in_terminal("sandbox", "create", "base", typed=b"echo w$((1))rds; exit\n", until=b"w1rds")
    x.made.append(ID.search(text).group())


@row("sandbox.connect")
async def _(x):
    in_terminal("sandbox", "connect", x.box, typed=b"echo w$((1))rds; exit\n", until=b"w1rds")


@row("sandbox.list")
async def _(x):
    assert x.box in e2b("sandbox", "list").stdout
    assert x.box in e2b("sandbox", "list", "--format", "json", "--order", "asc", "--limit", "0", "--template", "base").stdout


@row("sandbox.info")
async def _(x):
    assert "base" in e2b("sandbox", "info", x.box).stdout
    assert x.box in e2b("sandbox", "info", x.box, "--format", "json").stdout


@row("sandbox.exec")
async def _(x):
    done = e2b("sandbox", "exec", x.box, "echo out; echo err >&2; exit 7", check=False)
    assert (done.returncode, done.stdout) == (7, "out\n") and done.stderr.startswith("err\n"), done
    assert e2b("sandbox", "exec", "-u", "root", "-c", "/tmp", "-e", "A=b", x.box, "echo $A; pwd; whoami").stdout == "b\n/tmp\nroot\n"


@row("sandbox.exec (stdin)")
async def _(x):
    assert e2b("sandbox", "exec", x.box, "wc -c", stdin="y" * 200_000).stdout.strip() == "200000"


@row("sandbox.exec (background)")
async def _(x):
    begin = time.monotonic()
    e2b("sandbox", "exec", "--background", x.box, "sleep 305")
    assert time.monotonic() - begin < 100
    assert "sleep 305" in e2b("sandbox", "exec", x.box, "ps -eo args").stdout


@row("sandbox.kill (all)")
async def _(x):
    # Only those with a key of metadata that nobody has: other sandboxes of the service stay.
    e2b("sandbox", "kill", "--all", "--metadata", "no-such-key=1")
    assert x.box in e2b("sandbox", "list").stdout


@row("sandbox.create (lifecycle)")
async def _(x):
    x.create("--lifecycle.ontimeout", "pause")


@row("sandbox.pause", "sandbox.resume")
async def _(x):
    box = x.create()
    e2b("sandbox", "pause", box)
    assert "paused" in e2b("sandbox", "info", box).stdout
    e2b("sandbox", "resume", box)
    assert e2b("sandbox", "exec", box, "echo back").stdout == "back\n"


@row("sandbox.logs")
async def _(x):
    e2b("sandbox", "logs", x.box)


@row("sandbox.metrics")
async def _(x):
    e2b("sandbox", "metrics", x.box)


@row("snapshot.create", "snapshot.list", "snapshot.delete")
async def _(x):
    made = e2b("sandbox", "snapshot", "create", x.box)
    name = re.search(r"[\w./-]+:[\w.-]+", made.stdout + made.stderr).group()
    assert name in e2b("sandbox", "snapshot", "list").stdout
    e2b("sandbox", "snapshot", "delete", name)


@row("template.create")
async def _(x):
    with tempfile.TemporaryDirectory() as folder:
        with open(f"{folder}/e2b.Dockerfile", "w") as file:
            file.write("FROM debian:12\nRUN echo built >/built\n")
        e2b("template", "create", f"compat-{time.time_ns()}", cwd=folder)


@row("template.list")
async def _(x):
    assert "base" in e2b("template", "list").stdout


@row("template.publish")
async def _(x):
    e2b("template", "publish", "--yes", "base")


@row("template.unpublish")
async def _(x):
    e2b("template", "unpublish", "--yes", "base")


@row("template.delete")
async def _(x):
    e2b("template", "delete", "--yes", "no-such-template")


# These write files, or talk to the vendor's own login page and not to a server of ours.
row.without_wire("template.init", "template.migrate", "auth.login", "auth.logout", "auth.info", "auth.configure")


def commands_of(*group):
    """{name: help} of a group of commands, by its help; `help` itself is none."""
    text = e2b(*group, "--help").stdout.split("Commands:", 1)[1]
    return {n: n for n in re.findall(r"^  ([a-z]+)[| ]", text, re.M) if n != "help"}


async def main():
    x = Context()
    x.box = x.create()
    groups = {"sandbox": ("sandbox",), "snapshot": ("sandbox", "snapshot"), "template": ("template",), "auth": ("auth",)}
    classes = {n: type(n, (), {k: lambda: None for k in commands_of(*g) if k != "snapshot"}) for n, g in groups.items()}
    try:
        await run(row, classes, "e2b", x, sys.argv[3:])
    finally:
        for box in x.made:
            e2b("sandbox", "kill", box, check=False)


asyncio.run(main())
