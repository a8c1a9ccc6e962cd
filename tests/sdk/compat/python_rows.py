"""Every method of an E2B-shaped Python client that asks a server, once.

usage: python_rows.py MODULE sync|async [ROW...]      MODULE is e2b or agent_sandbox; E2B_* in the environment
"""

import asyncio
import sys

import python_sandbox  # noqa: F401  the rows, in their order
import python_commands  # noqa: F401
import python_files  # noqa: F401
import python_rest  # noqa: F401
from python_client import A, IS_ASYNC, Context, Sandbox, m, row, w
from rows import run


async def main():
    x = Context()
    box = await x.start()
    handle = await w(box.commands.run("true", background=True))
    names = ("SandboxPaginator", "SnapshotPaginator", "SecretPaginator", "Template", "Volume", "Secret")
    classes = {n: getattr(m, A + n) for n in names if hasattr(m, A + n)}
    classes |= {n: type(getattr(box, n)) for n in ("commands", "files", "pty", "git") if hasattr(box, n)}
    classes |= {"Sandbox": Sandbox, "handle": type(handle), "watch": getattr(m, A + "WatchHandle")}
    if IS_ASYNC and hasattr(m, "AsyncCommandInputHandle"):
        classes["input"] = m.AsyncCommandInputHandle
    try:
        await run(row, classes, m.__name__, x, sys.argv[3:])
    finally:
        await x.close()


asyncio.run(main())
