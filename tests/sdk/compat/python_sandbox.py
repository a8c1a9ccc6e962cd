"""Rows of Sandbox."""

import asyncio
import time
import urllib.request

from python_client import Sandbox, all_items, m, row, until, w


@row("Sandbox.create")
async def _(x):
    box = await x.new()
    assert (await w(box.commands.run("echo hello"))).stdout == "hello\n"
    await w(box.kill())


@row("Sandbox.create(metadata=)", "Sandbox.get_info")
async def _(x):
    box = await x.new(metadata={"a b": "ü&="})
    info = await w(box.get_info())
    assert info.metadata == {"a b": "ü&="} and info.sandbox_id == box.sandbox_id
    info = await w(Sandbox.get_info(box.sandbox_id))
    assert info.state.value == "running"
    await w(box.kill())


@row("Sandbox.create(envs=)")
async def _(x):
    box = await x.new(envs={"WORD": "told"})
    assert (await w(box.commands.run("echo $WORD"))).stdout == "told\n"
    await w(box.kill())


@row("Sandbox.create(secure=)")
async def _(x):
    box = await x.new(secure=True)
    assert await w(box.is_running())
    await w(box.kill())


@row("Sandbox.create(allow_internet_access=)")
async def _(x):
    box = await x.new(allow_internet_access=False)
    assert await w(box.is_running())
    await w(box.kill())


@row("Sandbox.create(network=)")
async def _(x):
    box = await x.new(network={"allow_out": ["192.0.2.1"], "deny_out": ["0.0.0.0/0"]})
    assert await w(box.is_running())
    await w(box.kill())


@row("Sandbox.create(lifecycle=)")
async def _(x):
    box = await x.new(lifecycle={"on_timeout": "pause", "auto_resume": False})
    assert await w(box.is_running())
    await w(box.kill())


@row("Sandbox.create(volume_mounts=)")
async def _(x):
    await x.new(volume_mounts={"/mnt/data": "no-such-volume"})


@row("Sandbox.create(mcp=)")
async def _(x):
    await x.new(mcp={"time": {}})


@row("Sandbox.create(iam=)")
async def _(x):
    await x.new(iam={"tokens": {"a": {"audience": "b", "token_type": "JWT-SVID"}}})


@row("Sandbox.create(idempotency_key=)")
async def _(x):
    key = f"compat-{time.time_ns()}"
    box = await x.new(idempotency_key=key)
    again = await x.new(idempotency_key=key)
    assert again.sandbox_id == box.sandbox_id
    await w(box.kill())


@row("Sandbox.beta_create")
async def _(x):
    box = await w(Sandbox.beta_create(timeout=300))
    x.made.append(box)
    assert await w(box.is_running())
    await w(box.kill())


@row("Sandbox.connect")
async def _(x):
    again = await w(Sandbox.connect(x.box.sandbox_id))
    assert (await w(again.commands.run("echo again"))).stdout == "again\n"
    assert (await w(again.connect(timeout=300))).sandbox_id == x.box.sandbox_id


@row("Sandbox.kill")
async def _(x):
    box, other = await x.new(), await x.new()
    assert await w(box.kill()) is True and await w(box.kill()) is False
    assert await w(Sandbox.kill(other.sandbox_id)) is True and await w(Sandbox.kill(other.sandbox_id)) is False
    assert await w(box.is_running()) is False


@row("Sandbox.set_timeout")
async def _(x):
    box = await x.new()
    await w(Sandbox.set_timeout(box.sandbox_id, 200))
    await w(box.set_timeout(1))

    async def gone():
        return not await w(box.is_running())

    await until(gone, "the end of its life")


@row("Sandbox.is_running")
async def _(x):
    assert await w(x.box.is_running()) is True


@row("Sandbox.list", "SandboxPaginator.next_items")
async def _(x):
    ids = [s.sandbox_id for s in await all_items(Sandbox.list(limit=1))]
    assert x.box.sandbox_id in ids


@row("Sandbox.list(query=)")
async def _(x):
    wanted = {"page": f"ü&=%{time.time_ns()}"}
    box = await x.new(metadata=wanted)
    found = await all_items(Sandbox.list(query=m.SandboxQuery(metadata=wanted)))
    assert [s.sandbox_id for s in found] == [box.sandbox_id]
    await w(box.kill())


@row("Sandbox.list(order=)")
async def _(x):
    box = await x.new()
    ids = [s.sandbox_id for s in await all_items(Sandbox.list(order="asc"))]
    assert ids.index(x.box.sandbox_id) < ids.index(box.sandbox_id)
    await w(box.kill())


@row("Sandbox.get_metrics")
async def _(x):
    async def sample():
        found = await w(x.box.get_metrics())
        return found and found[0].mem_total > 0

    await until(sample, "a first sample")


@row("Sandbox.get_host")
async def _(x):
    assert x.box.get_host(3000).startswith(f"3000-{x.box.sandbox_id}.")


async def fetch(url, data=None, headers=None):
    def ask():
        with urllib.request.urlopen(urllib.request.Request(url, data, headers or {}), timeout=90) as answer:
            return answer.read()

    return await asyncio.to_thread(ask)


@row("Sandbox.download_url")
async def _(x):
    await w(x.box.files.write("/tmp/down.txt", "down"))
    assert await fetch(await w(x.box.download_url("/tmp/down.txt"))) == b"down"
    assert await fetch(await w(x.box.download_url("/tmp/down.txt", use_signature_expiration=60))) == b"down"


@row("Sandbox.upload_url")
async def _(x):
    body = b'--b\r\nContent-Disposition: form-data; name="file"; filename="f"\r\n\r\nup\r\n--b--\r\n'
    kind = {"Content-Type": "multipart/form-data; boundary=b"}
    await fetch(await w(x.box.upload_url("/tmp/up.txt")), body, kind)
    assert await w(x.box.files.read("/tmp/up.txt")) == "up"


async def pause_and_back(x, **how):
    box = await x.new()
    await w(box.files.write("/tmp/kept", "kept"))
    await w(box.pause(**how))
    info = await w(box.get_info())
    assert info.state.value == "paused"
    await w(box.connect())
    assert await w(box.files.read("/tmp/kept")) == "kept"
    await w(box.kill())


row("Sandbox.pause", "Sandbox.connect (resume)")(pause_and_back)
row("Sandbox.pause(keep_memory=)")(lambda x: pause_and_back(x, keep_memory=False))
row("Sandbox.pause(mode=)")(lambda x: pause_and_back(x, mode="filesystem"))
row("Sandbox.pause(strict=)")(lambda x: pause_and_back(x, strict=True))


@row("Sandbox.connect(on_resume=)")
async def _(x):
    box = await x.new()
    await w(box.pause())
    again = await w(Sandbox.connect(box.sandbox_id, on_resume="reboot"))
    assert (await w(again.commands.run("echo back"))).stdout == "back\n"
    await w(box.kill())


@row("Sandbox.beta_pause")
async def _(x):
    box = await x.new()
    await w(box.beta_pause())
    await w(box.kill())


async def snapshot(x):
    box = await x.new()
    await w(box.files.write("/home/user/kept", "kept"))
    return box, await w(box.create_snapshot())


@row("Sandbox.create_snapshot")
async def _(x):
    box, made = await snapshot(x)
    copy = await w(Sandbox.create(template=made.snapshot_id, timeout=300))
    x.made.append(copy)
    assert await w(copy.files.read("/home/user/kept")) == "kept"
    await w(copy.kill())
    await w(box.kill())


@row("Sandbox.list_snapshots", "SnapshotPaginator.next_items")
async def _(x):
    assert isinstance(await all_items(Sandbox.list_snapshots()), list)
    box, made = await snapshot(x)
    assert made.snapshot_id in [s.snapshot_id for s in await all_items(box.list_snapshots())]
    await w(box.kill())


@row("Sandbox.delete_snapshot")
async def _(x):
    assert await w(Sandbox.delete_snapshot("no-such-snapshot")) is False
    box, made = await snapshot(x)
    await w(box.kill())
    assert await w(Sandbox.delete_snapshot(made.snapshot_id)) is True
    assert await w(Sandbox.delete_snapshot(made.snapshot_id)) is False


@row("Sandbox.rollback")
async def _(x):
    box, made = await snapshot(x)
    for back in (lambda: box.rollback(made.snapshot_id), lambda: Sandbox.rollback(box.sandbox_id, made.snapshot_id)):
        await w(box.files.write("/home/user/kept", "changed"))
        info = await w(back())
        assert (info.sandbox_id, info.state.value) == (box.sandbox_id, "running")
        assert await w(box.files.read("/home/user/kept")) == "kept"
    await w(box.kill())


@row("Sandbox.fork")
async def _(x):
    box = await x.new()
    await w(box.files.write("/home/user/kept", "kept"))
    copies = await w(box.fork(count=2))
    for copy in copies:
        assert not isinstance(copy, Exception), copy
        x.made.append(copy)
        assert await w(copy.files.read("/home/user/kept")) == "kept"
    assert len({copy.sandbox_id for copy in [box, *copies]}) == 3
    for copy in [box, *copies]:
        await w(copy.kill())


@row("Sandbox.update_network")
async def _(x):
    await w(x.box.update_network({"deny_out": ["0.0.0.0/0"], "allow_out": ["192.0.2.1"]}))


@row("Sandbox.get_mcp_token")
async def _(x):
    await w(x.box.commands.run("mkdir -p /etc/mcp-gateway && printf secret >/etc/mcp-gateway/.token", user="root"))
    assert await w(x.box.get_mcp_token()) == "secret"


@row("Sandbox.get_mcp_url")
async def _(x):
    assert x.box.get_mcp_url() == f"https://{x.box.get_host(50005)}/mcp"
