"""What the rows of an E2B-shaped Python client share: the client, chosen by python_rows.py's arguments, and a sandbox."""

import asyncio
import importlib
import sys
import time

from rows import Rows, value_of as w

m = importlib.import_module(sys.argv[1])
IS_ASYNC = sys.argv[2] == "async"
A = "Async" if IS_ASYNC else ""
Sandbox = getattr(m, A + "Sandbox")
Template = getattr(m, A + "Template", None)
Volume = getattr(m, A + "Volume", None)
Secret = getattr(m, A + "Secret", None)
row = Rows()


async def until(condition, what):
    """Waits for a condition, which may ask the server; a row's own deadline is longer."""
    end = time.monotonic() + 90
    while not await w(condition()):
        assert time.monotonic() < end, f"never: {what}"
        await asyncio.sleep(0.05)


class Context:
    """The sandbox that most rows share, and others that must go at the end."""

    def __init__(self):
        self.made = []
        self.box = None
        self.snapshot = None

    async def new(self, **args):
        box = await w(Sandbox.create(timeout=300, **args))
        self.made.append(box)
        return box

    async def start(self):
        self.box = await self.new()
        return self.box

    async def close(self):
        for box in self.made:
            await w(box.kill())


async def all_items(pages):
    found = []
    while pages.has_next:
        found += await w(pages.next_items())
    return found
