"""Every method of ProviderSandbox that asks a server, once.

usage: provider_rows.py [ROW...]      ABX_SANDBOX_BASE_URL, ABX_SANDBOX_API_KEY and ABX_SANDBOX_DOMAIN (localhost:PORT) in
the environment. Its `_sync` methods are these in asyncio.run(); they have no rows because the client keeps connections
whose loop is over, so that the second call to any server that lets a connection live fails with "Event loop is closed".
"""

import asyncio
import inspect
import os
import socket
import sys
import tempfile
import time

import agent_sandbox
from agent_sandbox import ProviderSandbox
from agent_sandbox.providers.shared.e2b.terminal import TerminalSession
from rows import Rows, run

row = Rows()
real_getaddrinfo = socket.getaddrinfo


def getaddrinfo(host, *args, **kwargs):
    """Names below .localhost are this machine, as with a resolver that knows them."""
    name = host.decode() if isinstance(host, bytes) else host
    return real_getaddrinfo("127.0.0.1" if name and name.endswith(".localhost") else host, *args, **kwargs)


socket.getaddrinfo = getaddrinfo


class Context:
    def __init__(self):
        self.made = []
        self.is_serving = False

    async def new(self, **args):
        box = await ProviderSandbox.create("base", timeout=300, secure=False, **args)
        self.made.append(box)
        return box

    async def close(self):
        for box in self.made:
            await box.kill()
            await box.close()


@row("ProviderSandbox.create", "ProviderSandbox.kill")
async def _(x):
    box = await x.new()
    assert (await box.commands.run("echo hello")).stdout == "hello\n"
    await box.kill()
    await box.kill()


@row("ProviderSandbox.create(metadata=)", "ProviderSandbox.create(envs=)")
async def _(x):
    box = await x.new(metadata={"a": "ü"}, envs={"WORD": "told"})
    assert (await box.refresh_info()).metadata == {"a": "ü"}
    assert (await box.commands.run("echo $WORD", shell=True)).stdout == "told\n"
    await box.kill()


@row("ProviderSandbox.create(cpu=)", "ProviderSandbox.create(memory=)", "ProviderSandbox.create(disk=)")
async def _(x):
    box = await x.new(cpu=1, memory=512, disk=1024)
    info = await box.refresh_info()
    assert (info.cpu, info.memory) == (1, 512) if hasattr(info, "cpu") else info
    await box.kill()


@row("ProviderSandbox.create(volume_mounts=)")
async def _(x):
    await x.new(volume_mounts={"/mnt/data": "no-such-volume"})


@row("ProviderSandbox.create(gpu=)")
async def _(x):
    await x.new(gpu="any")


@row("ProviderSandbox.connect")
async def _(x):
    again = await ProviderSandbox.connect(x.box.id)
    assert (await again.commands.run("echo again")).stdout == "again\n"
    await again.close()


@row("ProviderSandbox.close")
async def _(x):
    box = await x.new()
    await box.close()
    await ProviderSandbox.kill_by_id(box.id)


@row("ProviderSandbox.kill_by_id")
async def _(x):
    box = await x.new()
    await ProviderSandbox.kill_by_id(box.id)
    assert await box.is_running() is False


@row("ProviderSandbox.list")
async def _(x):
    assert x.box.id in [s.id if hasattr(s, "id") else s.sandbox_id for s in await ProviderSandbox.list()]


@row("ProviderSandbox.get_info_by_id")
async def _(x):
    info = await ProviderSandbox.get_info_by_id(x.box.id)
    assert getattr(info.status, "value", info.status) == "running"


@row("ProviderSandbox.refresh_info")
async def _(x):
    info = await x.box.refresh_info()
    assert getattr(info.status, "value", info.status) == "running"


@row("ProviderSandbox.set_timeout", "ProviderSandbox.set_timeout_by_id", "ProviderSandbox.is_running")
async def _(x):
    box = await x.new()
    await ProviderSandbox.set_timeout_by_id(box.id, 200)
    assert await box.is_running() is True
    await box.set_timeout(1)
    end = time.monotonic() + 90
    while await box.is_running():
        assert time.monotonic() < end, "it lives on"
        await asyncio.sleep(0.05)


@row("ProviderSandbox.pause")
async def _(x):
    await x.box.pause()


@row("ProviderSandbox.resume")
async def _(x):
    await x.box.resume()


@row("ProviderSandbox.run_code")
async def _(x):
    await x.box.run_code("1 + 1")


@row("code.run")
async def _(x):
    await x.box.code.run("1 + 1")


@row("code.create_context")
async def _(x):
    await x.box.code.create_context()


@row("code.list_contexts")
async def _(x):
    await x.box.code.list_contexts()


@row("code.restart_context")
async def _(x):
    await x.box.code.restart_context("c")


@row("code.remove_context")
async def _(x):
    await x.box.code.remove_context("c")


for name in ("upload_url", "download_url", "get_upload_url", "get_download_url"):
    row(f"ProviderSandbox.{name}")(lambda x, name=name: getattr(x.box, name)("/tmp/a"))


@row("ProviderSandbox.get_terminal", "terminal.send", "terminal.send_bytes", "terminal.receive",
     "terminal.output_stream", "terminal.resize", "terminal.close")
async def _(x):
    terminal = await x.box.get_terminal(cols=80, rows=24)
    await terminal.resize(101, 33)
    await terminal.send("stty size; echo w$((1))rds\n")
    await terminal.send_bytes(b"exit\n")
    text, end = "", time.monotonic() + 90
    while "w1rds" not in text or "33 101" not in text:
        assert time.monotonic() < end, text
        part = await terminal.receive(timeout=90)
        text += part if isinstance(part, str) else part.decode(errors="replace")
    async for part in terminal.output_stream():
        text += part if isinstance(part, str) else part.decode(errors="replace")
    await terminal.close()


SERVER = '''
import http.server, json
class H(http.server.BaseHTTPRequestHandler):
    def answer(self, body):
        data = json.dumps(body).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)
    def do_GET(self):
        self.answer({"commands": [{"name": "hello", "description": "d", "args": []}]} if self.path == "/commands" else
                    {"status": "ok"})
    def do_POST(self):
        got = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.answer({"result": got["who"] + self.path})
http.server.ThreadingHTTPServer(("127.0.0.1", 9000), H).serve_forever()
'''


@row("ProviderSandbox.start_server", "ProviderSandbox.application_client")
async def _(x):
    await x.box.files.write("/tmp/other.py", SERVER.replace("9000", "9002"))
    client = await x.box.start_server(port=9002, command="python3 /tmp/other.py")
    assert await client.health()
    await serve(x)
    async with await x.box.application_client(9000) as again:
        assert await again.health()


async def serve(x):
    """The server above on port 9000 of the sandbox, once."""
    if x.is_serving:
        return
    await x.box.files.write("/tmp/server.py", SERVER)
    await x.box.commands.run("setsid python3 /tmp/server.py >/dev/null 2>&1 </dev/null &", shell=True)
    x.is_serving = True


@row("ProviderSandbox.list_commands")
async def _(x):
    await serve(x)
    assert [c.name for c in await x.box.list_commands()] == ["hello"]


@row("ProviderSandbox.run")
async def _(x):
    await serve(x)
    assert await x.box.run("hello", who="me") == "me/commands/hello"


@row("ProviderSandbox.server_at")
async def _(x):
    async with x.box.server_at(9000) as client:
        assert await client.health()


# ---- commands

@row("commands.run")
async def _(x):
    done = await x.box.commands.run("echo out; echo err >&2; exit 4", shell=True)
    assert (done.stdout, done.stderr, done.exit_code) == ("out\n", "err\n", 4)


@row("commands.run(env=)", "commands.run(cwd=)", "commands.run(user=)")
async def _(x):
    done = await x.box.commands.run("echo $A; pwd; whoami", shell=True, env={"A": "b"}, cwd="/tmp", user="root")
    assert done.stdout == "b\n/tmp\nroot\n"


@row("commands.run(on_stdout=)")
async def _(x):
    parts = []
    await x.box.commands.run("echo 1; echo 2", on_stdout=parts.append)
    assert "".join(parts) == "1\n2\n"


@row("commands.run(timeout=)")
async def _(x):
    try:
        await x.box.commands.run("sleep 301", timeout=1)
    except agent_sandbox.ExecutionError as error:
        assert type(error).__name__ == "CommandTimeoutError", error
    else:
        raise AssertionError("no CommandTimeoutError")


@row("commands.stream")
async def _(x):
    parts = []
    async for chunk in x.box.commands.stream("echo out"):
        parts.append(chunk)
    assert "".join(c.data or "" for c in parts) == "out\n"


@row("commands.start")
async def _(x):
    reader = await x.box.commands.start("echo out")
    assert "".join(c.data or "" for c in await reader.collect()) == "out\n"


async def started(x, command):
    """(pid, reader) of a command that runs."""
    reader = await x.box.commands.start(command)
    async for chunk in reader:
        if chunk.pid:
            return chunk.pid, reader
    raise AssertionError("no pid")


@row("commands.list", "commands.kill")
async def _(x):
    pid, reader = await started(x, "sleep 302")
    assert pid in [p.pid for p in await x.box.commands.list()]
    await x.box.commands.kill(pid)
    await reader.collect()
    assert pid not in [p.pid for p in await x.box.commands.list()]


@row("commands.send_signal")
async def _(x):
    pid, reader = await started(x, "sleep 303")
    await x.box.commands.send_signal(pid, 15)
    await reader.collect()


@row("commands.send_input")
async def _(x):
    # The client starts every command without stdin: the server has to say so.
    pid, reader = await started(x, "sleep 304")
    try:
        await x.box.commands.send_input(pid, "words\n")
    finally:
        await x.box.commands.kill(pid)
        await reader.collect()


# ---- files

EVERY = bytes(range(256)) * 64


@row("files.write", "files.read", "files.read_bytes")
async def _(x):
    await x.box.files.write("/tmp/f/text.txt", "content ä")
    assert await x.box.files.read("/tmp/f/text.txt") == "content ä"
    await x.box.files.write("/tmp/f/every", EVERY)
    assert await x.box.files.read_bytes("/tmp/f/every") == EVERY


@row("files.upload", "files.download")
async def _(x):
    with tempfile.TemporaryDirectory() as folder:
        with open(f"{folder}/up", "wb") as file:
            file.write(EVERY)
        await x.box.files.upload(f"{folder}/up", "/tmp/f/up")
        await x.box.files.download("/tmp/f/up", f"{folder}/down")
        with open(f"{folder}/down", "rb") as file:
            assert file.read() == EVERY


@row("files.list", "files.exists", "files.make_dir", "files.move", "files.get_info", "files.remove")
async def _(x):
    f = x.box.files
    await f.make_dir("/tmp/g/d")
    await f.write("/tmp/g/a", "a")
    assert {e.name for e in await f.list("/tmp/g")} == {"a", "d"}
    await f.move("/tmp/g/a", "/tmp/g/b")
    assert [await f.exists(p) for p in ("/tmp/g/a", "/tmp/g/b")] == [False, True]
    assert (await f.get_info("/tmp/g/b")).size == 1
    await f.remove("/tmp/g")
    assert await f.exists("/tmp/g") is False


@row("files.watch")
async def _(x):
    await x.box.files.make_dir("/tmp/w")
    reader = await x.box.files.watch("/tmp/w")
    told = asyncio.ensure_future(reader.__anext__())
    end = time.monotonic() + 90
    while not told.done():  # the stream begins with the first question
        assert time.monotonic() < end, "no event"
        await x.box.commands.run(f"touch /tmp/w/{time.time_ns()}")
        await asyncio.wait([told], timeout=0.2)
    assert told.result()
    await reader.cancel()


@row("files.upload_url")
async def _(x):
    assert "/files" in await x.box.files.upload_url("/tmp/f")


@row("files.download_url")
async def _(x):
    assert "/files" in await x.box.files.download_url("/tmp/f")


# ---- network

@row("network.resolve", "network.resolve_url", "network.get_url", "network.get_host", "network.get_access_headers",
     "network.get_server_headers")
async def _(x):
    n = x.box.network
    domain = os.environ["ABX_SANDBOX_DOMAIN"]
    assert n.get_host(3000) == f"3000-{x.box.id}.{domain}" and n.get_url(3000) == f"http://3000-{x.box.id}.{domain}"
    assert (await n.resolve(3000))[0] == await n.resolve_url(3000) == n.get_url(3000)
    assert isinstance(n.get_access_headers(), dict) and isinstance(n.get_server_headers(), dict)


def asynchronous(cls):
    """A class with those of its methods that have rows."""
    every = {n: v for n, v in inspect.getmembers(cls) if not n.startswith("_") and callable(v)}
    return type(cls.__name__, (), {n: v for n, v in every.items() if not n.endswith("_sync")})


async def main():
    x = Context()
    x.box = await x.new()
    classes = {n: asynchronous(type(getattr(x.box, n))) for n in ("commands", "files", "code", "network")}
    classes["ProviderSandbox"] = asynchronous(ProviderSandbox)
    classes["terminal"] = TerminalSession
    row.without_wire("terminal.create")
    try:
        await run(row, classes, "agent_sandbox", x, sys.argv[1:])
    finally:
        await x.close()


asyncio.run(main())
