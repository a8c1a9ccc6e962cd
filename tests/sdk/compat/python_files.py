"""Rows of files and git."""

import io
import time

from python_client import IS_ASYNC, row, until, w


@row("files.write", "files.read")
async def _(x):
    info = await w(x.box.files.write("/tmp/f/deep/text.txt", "content ä"))
    assert info.path == "/tmp/f/deep/text.txt"
    assert await w(x.box.files.read("/tmp/f/deep/text.txt")) == "content ä"


EVERY = bytes(range(256)) * 64


@row("files.write (bytes)", "files.read (bytes)")
async def _(x):
    await w(x.box.files.write("/tmp/f/every", EVERY))
    assert bytes(await w(x.box.files.read("/tmp/f/every", format="bytes"))) == EVERY


@row("files.write (file object)")
async def _(x):
    await w(x.box.files.write("/tmp/f/object", io.BytesIO(EVERY * 50)))
    assert (await w(x.box.files.get_info("/tmp/f/object"))).size == len(EVERY) * 50


@row("files.read (stream)")
async def _(x):
    await w(x.box.files.write("/tmp/f/stream", EVERY))
    got = b""
    parts = await w(x.box.files.read("/tmp/f/stream", format="stream"))
    if IS_ASYNC:
        async for part in parts:
            got += part
    else:
        got = b"".join(parts)
    assert got == EVERY


@row("files.write(gzip=)", "files.read(gzip=)")
async def _(x):
    await w(x.box.files.write("/tmp/f/gzip", "g" * 10000, gzip=True))
    assert await w(x.box.files.read("/tmp/f/gzip", gzip=True)) == "g" * 10000
    assert await w(x.box.files.read("/tmp/f/gzip")) == "g" * 10000


@row("files.write(use_octet_stream=)")
async def _(x):
    await w(x.box.files.write("/tmp/f/octets", EVERY, use_octet_stream=True))
    assert bytes(await w(x.box.files.read("/tmp/f/octets", format="bytes"))) == EVERY


@row("files.write(metadata=)")
async def _(x):
    await w(x.box.files.write("/tmp/f/meta", "x", metadata={"author": "me"}))
    assert (await w(x.box.files.get_info("/tmp/f/meta"))).metadata == {"author": "me"}


@row("files.write(user=)", "files.read(user=)")
async def _(x):
    await w(x.box.files.write("/root/own", "r", user="root"))
    assert await w(x.box.files.read("/root/own", user="root")) == "r"
    assert (await w(x.box.files.get_info("/root/own", user="root"))).owner == "root"


@row("files.write_files")
async def _(x):
    made = await w(x.box.files.write_files([{"path": f"/tmp/f/m{i}", "data": str(i)} for i in range(5)]))
    assert [i.path for i in made] == [f"/tmp/f/m{i}" for i in range(5)]
    assert await w(x.box.files.read("/tmp/f/m4")) == "4"


@row("files.list")
async def _(x):
    await w(x.box.files.write("/tmp/list/a/b/c.txt", "c"))
    found = await w(x.box.files.list("/tmp/list"))
    assert [(e.name, e.type.value, e.path) for e in found] == [("a", "dir", "/tmp/list/a")]


@row("files.list(depth=)")
async def _(x):
    await w(x.box.files.write("/tmp/list/a/b/c.txt", "c"))
    assert {e.name for e in await w(x.box.files.list("/tmp/list", depth=3))} == {"a", "b", "c.txt"}


@row("files.exists")
async def _(x):
    assert await w(x.box.files.exists("/etc/passwd")) is True
    assert await w(x.box.files.exists("/etc/none")) is False


@row("files.get_info")
async def _(x):
    info = await w(x.box.files.get_info("/etc/passwd"))
    assert (info.name, info.owner, info.mode & 0o777, info.permissions) == ("passwd", "root", 0o644, "-rw-r--r--")


@row("files.remove")
async def _(x):
    await w(x.box.files.write("/tmp/gone/a", ""))
    await w(x.box.files.remove("/tmp/gone"))
    assert await w(x.box.files.exists("/tmp/gone")) is False


@row("files.rename")
async def _(x):
    await w(x.box.files.write("/tmp/f/old", "o"))
    assert (await w(x.box.files.rename("/tmp/f/old", "/tmp/f/new"))).path == "/tmp/f/new"


@row("files.make_dir")
async def _(x):
    name = f"/tmp/made/{time.time_ns()}/deep"
    assert await w(x.box.files.make_dir(name)) is True
    assert await w(x.box.files.make_dir(name)) is False


async def watch(x, change, expected, **args):
    """Watches a new folder while `change` (a command) runs in it, until a file of the name `expected` was told."""
    folder = f"/tmp/watch/{time.time_ns()}"
    await w(x.box.files.make_dir(folder))
    events = []
    if IS_ASYNC:
        handle = await x.box.files.watch_dir(folder, events.append, **args)
    else:
        handle = x.box.files.watch_dir(folder, **args)
    await w(x.box.commands.run(change, cwd=folder))

    async def told():
        if not IS_ASYNC:
            events.extend(handle.get_new_events())
        return [e for e in events if e.name == expected]

    await until(told, f"an event of {expected}")
    await w(handle.stop())
    return [e for e in events if e.name == expected]


@row("files.watch_dir", "watch.get_new_events", "watch.stop")
async def _(x):
    events = await watch(x, "echo a >made", "made")
    assert events[0].type.value == "create"


@row("files.watch_dir(recursive=)")
async def _(x):
    assert await watch(x, "mkdir -p a/b && touch a/b/c", "a/b/c", recursive=True)


@row("files.watch_dir(include_entry=)")
async def _(x):
    events = await watch(x, "echo a >made", "made", include_entry=True)
    assert any(e.entry and e.entry.name == "made" for e in events)


@row("files.watch_dir(allow_network_mounts=)")
async def _(x):
    assert await watch(x, "echo a >made", "made", allow_network_mounts=True)


# ---- git

REPO = "/tmp/git/repo"


async def repo(x):
    """A repository with one commit and a bare one beside it, both new."""
    g = x.box.git
    await w(x.box.commands.run("rm -rf /tmp/git; mkdir /tmp/git"))
    await w(g.init("/tmp/git/bare.git", bare=True, initial_branch="main"))
    await w(g.init(REPO, initial_branch="main"))
    await w(x.box.files.write(f"{REPO}/a.txt", "1"))
    await w(g.add(REPO))
    await w(g.commit(REPO, "first", author_name="A", author_email="a@example.com"))
    return g


@row("git.init", "git.add", "git.commit")
async def _(x):
    await repo(x)
    assert (await w(x.box.commands.run(f"git -C {REPO} log --format=%an:%s"))).stdout == "A:first\n"


@row("git.status")
async def _(x):
    g = await repo(x)
    await w(x.box.files.write(f"{REPO}/b.txt", "2"))
    status = await w(g.status(REPO))
    assert status.current_branch == "main" and [f.name for f in status.file_status] == ["b.txt"]


@row("git.branches", "git.create_branch", "git.checkout_branch", "git.delete_branch")
async def _(x):
    g = await repo(x)
    await w(g.create_branch(REPO, "side"))
    await w(g.checkout_branch(REPO, "main"))
    found = await w(g.branches(REPO))
    assert found.current_branch == "main" and sorted(found.branches) == ["main", "side"]
    await w(g.delete_branch(REPO, "side", force=True))
    assert (await w(g.branches(REPO))).branches == ["main"]


@row("git.configure_user", "git.set_config", "git.get_config")
async def _(x):
    g = await repo(x)
    await w(g.configure_user("B", "b@example.com"))
    assert await w(g.get_config("user.name")) == "B"
    await w(g.set_config("core.abbrev", "12", scope="local", path=REPO))
    assert await w(g.get_config("core.abbrev", scope="local", path=REPO)) == "12"


@row("git.remote_add", "git.remote_get", "git.push", "git.clone", "git.pull")
async def _(x):
    g = await repo(x)
    await w(g.remote_add(REPO, "origin", "/tmp/git/bare.git"))
    if hasattr(g, "remote_get"):
        assert await w(g.remote_get(REPO, "origin")) == "/tmp/git/bare.git"
    await w(g.push(REPO, "origin", "main"))
    await w(g.clone("/tmp/git/bare.git", "/tmp/git/copy"))
    assert await w(x.box.files.read("/tmp/git/copy/a.txt")) == "1"
    await w(g.pull("/tmp/git/copy", "origin", "main"))


@row("git.reset", "git.restore")
async def _(x):
    g = await repo(x)
    await w(x.box.files.write(f"{REPO}/a.txt", "changed"))
    await w(g.add(REPO))
    await w(g.reset(REPO, mode="mixed"))
    await w(g.restore(REPO, ["a.txt"]))
    assert await w(x.box.files.read(f"{REPO}/a.txt")) == "1"


@row("git.dangerously_authenticate")
async def _(x):
    await w(x.box.git.dangerously_authenticate("me", "secret", host="git.example.com"))
    found = await w(x.box.commands.run("printf 'protocol=https\\nhost=git.example.com\\n\\n' | git credential fill"))
    assert "password=secret" in found.stdout
