"""Watching folders with the official Python SDK, unmodified. Runs with 2.26 and 2.63."""

import asyncio
import time

import e2b
import pytest
from e2b import AsyncSandbox, Sandbox
from test_sandbox import OLD
from waiting import BUSY_S

NEW = pytest.mark.skipif(OLD, reason="entries and network mounts came later")


@pytest.fixture(scope="module")
def sandbox():
    box = Sandbox.create(timeout=300)
    yield box
    box.kill()


def told(events):
    return [(e.name, e.type.value) for e in events]


def test_a_new_small_file(sandbox):
    sandbox.files.make_dir("/tmp/w1")
    handle = sandbox.files.watch_dir("/tmp/w1")
    sandbox.files.write("/tmp/w1/f.txt", "content")
    assert told(handle.get_new_events()) == [("f.txt", "create"), ("f.txt", "chmod"), ("f.txt", "write")]
    assert handle.get_new_events() == []
    sandbox.files.write("/tmp/w1/f.txt", "other content")
    assert ("f.txt", "write") in told(handle.get_new_events())
    sandbox.files.rename("/tmp/w1/f.txt", "/tmp/w1/g.txt")
    assert told(handle.get_new_events()) == [("f.txt", "rename"), ("g.txt", "create")]
    sandbox.commands.run("chmod 600 /tmp/w1/g.txt")
    assert told(handle.get_new_events()) == [("g.txt", "chmod")]
    sandbox.files.remove("/tmp/w1/g.txt")
    assert told(handle.get_new_events()) == [("g.txt", "remove")]
    handle.stop()
    with pytest.raises(e2b.SandboxException):
        handle.get_new_events()


def test_large_and_many_files(sandbox):
    handle = sandbox.files.watch_dir("/tmp", recursive=True)
    sandbox.files.write("/tmp/w2/large", b"x" * (3 << 20))
    sandbox.files.write_files([{"path": f"/tmp/w2/{i}", "data": "1"} for i in range(20)])
    events = told(handle.get_new_events())
    handle.stop()
    assert sorted(n for n, t in events if t == "create" and n.startswith("w2")) == sorted(["w2", "w2/large"] + [f"w2/{i}" for i in range(20)])
    assert {f"w2/{i}" for i in range(20)} | {"w2/large"} <= {n for n, t in events if t == "write"}
    assert not any(".abx" in n for n, _ in events)


def test_recursive(sandbox):
    sandbox.files.make_dir("/tmp/w3")
    handle = sandbox.files.watch_dir("/tmp/w3", recursive=True)
    flat = sandbox.files.watch_dir("/tmp/w3")
    sandbox.commands.run("mkdir -p /tmp/w3/a/b/c/d && touch /tmp/w3/a/b/c/d/f")
    made = [n for n, t in told(handle.get_new_events()) if t == "create"]
    assert made == ["a", "a/b", "a/b/c", "a/b/c/d", "a/b/c/d/f"]
    assert told(flat.get_new_events()) == [("a", "create")]
    handle.stop()
    flat.stop()


def test_errors(sandbox):
    sandbox.files.write("/tmp/w4/file", "")
    with pytest.raises(e2b.NotFoundException):
        sandbox.files.watch_dir("/tmp/w4/none")
    with pytest.raises(e2b.InvalidArgumentException):
        sandbox.files.watch_dir("/tmp/w4/file")
    with pytest.raises(e2b.SandboxException, match="(?i)permission"):
        sandbox.files.watch_dir("/root", user="user")
    handle = sandbox.files.watch_dir("/tmp/w4")
    handle.stop()
    with pytest.raises(e2b.NotFoundException):
        handle.stop()


@NEW
def test_entries(sandbox):
    sandbox.files.make_dir("/tmp/w5")
    handle = sandbox.files.watch_dir("/tmp/w5", include_entry=True, allow_network_mounts=True)
    sandbox.files.write("/tmp/w5/f", "12345", metadata={"key": "value"})
    sandbox.files.remove("/tmp/w5/f")
    sandbox.files.write("/tmp/w5/g", "12345")
    events = handle.get_new_events()
    handle.stop()
    assert told(events)[-3:] == [("g", "create"), ("g", "chmod"), ("g", "write")]
    assert [e.entry and e.entry.path for e in events[-4:]] == [None] + ["/tmp/w5/g"] * 3
    assert events[-1].entry == sandbox.files.get_info("/tmp/w5/g")


def run_async(test):
    async def main():
        box = await AsyncSandbox.create(timeout=120)
        try:
            await test(box)
        finally:
            await box.kill()

    asyncio.run(main())


def test_async_stream():
    async def test(box):
        events, ends = asyncio.Queue(), asyncio.Queue()
        await box.files.make_dir("/tmp/w")
        handle = await box.files.watch_dir("/tmp/w", events.put, on_exit=ends.put, recursive=True)
        await box.files.write("/tmp/w/f", "content")
        got = [await asyncio.wait_for(events.get(), BUSY_S) for _ in range(3)]
        assert told(got) == [("f", "create"), ("f", "chmod"), ("f", "write")]
        await box.commands.run("mkdir -p /tmp/w/a/b && echo 1 > /tmp/w/a/b/g")
        got = []
        while ("a/b/g", "write") not in told(got):
            got.append(await asyncio.wait_for(events.get(), BUSY_S))
        assert [n for n, t in told(got) if t == "create"] == ["a", "a/b", "a/b/g"]
        await handle.stop()
        await box.files.write("/tmp/w/late", "")
        assert events.empty()

    run_async(test)


def test_async_ends():
    async def test(box):
        ends, events = asyncio.Queue(), []
        await box.files.make_dir("/tmp/w/d")
        started = time.monotonic()
        await box.files.watch_dir("/tmp/w/d", events.append, on_exit=ends.put, timeout=5)
        error = await asyncio.wait_for(ends.get(), BUSY_S)
        assert isinstance(error, Exception) and time.monotonic() - started > 4.5
        if OLD:
            return  # 2.26 calls back for errors only
        await box.files.watch_dir("/tmp/w/d", events.append, on_exit=ends.put, timeout=0)
        await box.files.remove("/tmp/w/d")
        assert await asyncio.wait_for(ends.get(), BUSY_S) is None
        assert told(events) == [(".", "remove")]
        with pytest.raises(e2b.NotFoundException):
            await box.files.watch_dir("/tmp/w/d", events.append)

    run_async(test)


def test_20000_files():
    async def test(box):
        names, done = set(), asyncio.Event()

        def on_event(event):
            if event.type.value == "create":
                names.add(event.name)
                if len(names) == 20000:
                    done.set()

        await box.files.make_dir("/tmp/w")
        handle = await box.files.watch_dir("/tmp/w", on_event, timeout=0)
        await box.commands.run("cd /tmp/w; seq 20000 | xargs touch", timeout=60)
        await asyncio.wait_for(done.wait(), BUSY_S)
        await handle.stop()

    run_async(test)
