"""Watching folders with the published agent-sandbox-client, unmodified."""

import asyncio

import agent_sandbox as errors
import pytest
from agent_sandbox import AsyncSandbox, Sandbox
from waiting import BUSY_S


def told(events):
    return [(e.name, getattr(e.type, "value", e.type)) for e in events]


def test_polled():
    box = Sandbox.create(timeout=120)
    try:
        box.files.make_dir("/tmp/w")
        handle = box.files.watch_dir("/tmp/w", recursive=True, include_entry=True)
        box.files.write("/tmp/w/f", "12345")
        events = handle.get_new_events()
        assert told(events) == [("f", "create"), ("f", "chmod"), ("f", "write")]
        assert [e.entry.size for e in events] == [5, 5, 5]
        box.commands.run("mkdir -p /tmp/w/a/b && touch /tmp/w/a/b/g")
        assert [n for n, t in told(handle.get_new_events()) if t == "create"] == ["a", "a/b", "a/b/g"]
        handle.stop()
        with pytest.raises(errors.NotFoundException):
            box.files.watch_dir("/tmp/none")
    finally:
        box.kill()


def test_streamed():
    async def main():
        box = await AsyncSandbox.create(timeout=120)
        try:
            events = asyncio.Queue()
            await box.files.make_dir("/tmp/w")
            handle = await box.files.watch_dir("/tmp/w", events.put, recursive=True)
            await box.files.write("/tmp/w/f", "content")
            got = [await asyncio.wait_for(events.get(), BUSY_S) for _ in range(3)]
            assert told(got) == [("f", "create"), ("f", "chmod"), ("f", "write")]
            await handle.stop()
        finally:
            await box.kill()

    asyncio.run(main())
