"""Rows of commands, their handles, and pty."""

import importlib
import inspect
import time

from python_client import IS_ASYNC, m, row, until, w


def pty_size(rows, cols):
    size = getattr(m, "PtySize", None)
    return (size or importlib.import_module("e2b.sandbox.commands.command_handle").PtySize)(rows=rows, cols=cols)


@row("commands.run")
async def _(x):
    done = await w(x.box.commands.run("echo out; echo err >&2"))
    assert (done.stdout, done.stderr, done.exit_code) == ("out\n", "err\n", 0)


@row("commands.run (exit code)")
async def _(x):
    try:
        await w(x.box.commands.run("echo out; exit 3"))
    except m.CommandExitException as error:
        assert (error.exit_code, error.stdout) == (3, "out\n")
    else:
        raise AssertionError("no CommandExitException")


@row("commands.run(envs=)", "commands.run(cwd=)", "commands.run(user=)")
async def _(x):
    done = await w(x.box.commands.run("echo $A; pwd; whoami", envs={"A": "ü'\""}, cwd="/tmp", user="root"))
    assert done.stdout == "ü'\"\n/tmp\nroot\n"


@row("commands.run(on_stdout=)", "commands.run(on_stderr=)")
async def _(x):
    out, err = [], []
    await w(x.box.commands.run("echo 1; sleep 0.2; echo 2; echo 3 >&2", on_stdout=out.append, on_stderr=err.append))
    assert ("".join(out), "".join(err)) == ("1\n2\n", "3\n")


@row("commands.run(timeout=)")
async def _(x):
    begin = time.monotonic()
    try:
        await w(x.box.commands.run("sleep 301", timeout=1))
    except Exception as error:
        # Older clients measure twice; the one that wins decides about the class.
        assert type(error).__name__ in ("TimeoutException", "ReadTimeout"), error
    else:
        raise AssertionError("no TimeoutException")
    assert time.monotonic() - begin < 100
    await until(lambda: no_process(x, "sleep 301"), "the end of the command")


async def no_process(x, words):
    return words not in (await w(x.box.commands.run("ps -eo args"))).stdout


@row("commands.run(retain_output=)")
async def _(x):
    done = await w(x.box.commands.run("echo out", retain_output=False))
    assert done.exit_code == 0 and not done.stdout


@row("commands.run(background=)", "handle.wait")
async def _(x):
    handle = await w(x.box.commands.run("echo out", background=True))
    assert (await w(handle.wait())).stdout == "out\n"


@row("commands.list")
async def _(x):
    handle = await w(x.box.commands.run("sleep 302", background=True, envs={"B": "c"}, cwd="/tmp"))
    found = {p.pid: p for p in await w(x.box.commands.list())}[handle.pid]
    assert (found.cmd, found.args[-1], found.envs["B"], found.cwd) == ("/bin/bash", "sleep 302", "c", "/tmp")
    await w(handle.kill())


@row("commands.kill")
async def _(x):
    handle = await w(x.box.commands.run("sleep 303", background=True))
    assert await w(x.box.commands.kill(handle.pid)) is True
    try:
        await w(handle.wait())
    except m.CommandExitException:
        pass
    assert await w(x.box.commands.kill(handle.pid)) is False


@row("commands.connect")
async def _(x):
    handle = await w(x.box.commands.run("read line; echo got $line", background=True, stdin=True))
    again = await w(x.box.commands.connect(handle.pid))
    await w(x.box.commands.send_stdin(handle.pid, "it\n"))
    assert (await w(again.wait())).stdout == "got it\n"


@row("commands.run(stdin=)", "commands.send_stdin")
async def _(x):
    handle = await w(x.box.commands.run("read line; echo got $line", background=True, stdin=True))
    await w(x.box.commands.send_stdin(handle.pid, "words ü\n"))
    assert (await w(handle.wait())).stdout == "got words ü\n"


@row("commands.close_stdin")
async def _(x):
    handle = await w(x.box.commands.run("wc -c", background=True, stdin=True))
    await w(x.box.commands.send_stdin(handle.pid, "x" * 1000))
    await w(x.box.commands.close_stdin(handle.pid))
    assert (await w(handle.wait())).stdout == "1000\n"


async def stream_to(group, pid, pieces):
    if not IS_ASYNC:
        return group.stream_input(pid, pieces)
    stream = await w(group.stream_input(pid))
    for piece in pieces:
        await w(stream.send(piece))
    await w(stream.close())


@row("commands.stream_input", "input.send", "input.close")
async def _(x):
    handle = await w(x.box.commands.run("head -c 6", background=True, stdin=True))
    await stream_to(x.box.commands, handle.pid, ["one", b"two"])
    assert (await w(handle.wait())).stdout == "onetwo"


@row("handle.send_stdin", "handle.close_stdin")
async def _(x):
    handle = await w(x.box.commands.run("cat", background=True, stdin=True))
    await w(handle.send_stdin("words"))
    await w(handle.close_stdin())
    assert (await w(handle.wait())).stdout == "words"


@row("handle.kill")
async def _(x):
    handle = await w(x.box.commands.run("sleep 304", background=True))
    assert await w(handle.kill()) is True
    await until(lambda: no_process(x, "sleep 304"), "the end of the command")


@row("handle.disconnect")
async def _(x):
    handle = await w(x.box.commands.run("sleep 305", background=True))
    await w(handle.disconnect())
    assert handle.pid in [p.pid for p in await w(x.box.commands.list())]
    assert await w(x.box.commands.kill(handle.pid)) is True


# ---- pty

async def open_pty(x, **args):
    """(handle, function that collects what it printed until it ends)."""
    parts = []
    if IS_ASYNC:
        handle = await x.box.pty.create(pty_size(24, 80), parts.append, **args)
    else:
        handle = x.box.pty.create(pty_size(24, 80), **args)

    async def finish():
        try:
            await (handle.wait() if IS_ASYNC else w(handle.wait(on_pty=parts.append)))
        except m.CommandExitException:
            pass
        return b"".join(bytes(p) for p in parts)

    return handle, finish


@row("pty.create", "pty.send_stdin")
async def _(x):
    handle, finish = await open_pty(x, envs={"A": "b"}, cwd="/tmp", user="root")
    await w(x.box.pty.send_stdin(handle.pid, b"echo \"<$A:$PWD:$(whoami):$TERM>\"; exit\n"))
    assert b"<b:/tmp:root:xterm-256color>" in await finish()


@row("pty.resize")
async def _(x):
    handle, finish = await open_pty(x)
    await w(x.box.pty.resize(handle.pid, pty_size(33, 101)))
    await w(x.box.pty.send_stdin(handle.pid, b"stty size; exit\n"))
    assert b"33 101" in await finish()


@row("pty.kill")
async def _(x):
    handle, finish = await open_pty(x)
    assert await w(x.box.pty.kill(handle.pid)) is True
    await finish()
    assert await w(x.box.pty.kill(handle.pid)) is False


@row("pty.connect")
async def _(x):
    handle, finish = await open_pty(x)
    parts = []
    if "on_data" in inspect.signature(x.box.pty.connect).parameters:
        again = await w(x.box.pty.connect(handle.pid, parts.append))
        ended = again.wait()
    else:
        again = await w(x.box.pty.connect(handle.pid))
        ended = None
    await w(x.box.pty.send_stdin(handle.pid, b"echo w$((1))rds; exit\n"))
    try:
        await w(ended or again.wait(on_pty=parts.append))
    except m.CommandExitException:
        pass
    assert b"w1rds" in b"".join(bytes(p) for p in parts)
    await finish()


@row("pty.stream_input")
async def _(x):
    handle, finish = await open_pty(x)
    await stream_to(x.box.pty, handle.pid, [b"echo w$((1))", b"rds; exit\n"])
    assert b"w1rds" in await finish()
