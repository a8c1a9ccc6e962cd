"""Clients of GET /terminal that others wrote, for test_guest_terminal.py: plays one scenario, prints its result as JSON.
usage: terminal_client.py SCENARIO HTTP-URL TOKEN"""

import asyncio
import json
import sys

import websockets.asyncio.client
import websockets.exceptions
from agent_sandbox.providers.shared.e2b.terminal import TerminalSession
from agent_sandbox.transport.config import TransportConfig

URL, TOKEN = sys.argv[2], sys.argv[3]
HEADERS = {"X-Access-Token": TOKEN, "Authorization": "Basic dXNlcjo="}


class Token:
    """What the published client asks for the fields of a request."""

    def get_headers(self):
        return HEADERS


async def until(receive, text, got=b""):
    """Everything up to the text; `receive` gives one message."""
    while text not in got:
        part = await asyncio.wait_for(receive(), 90)
        got += part if isinstance(part, bytes) else part.encode()
    return got


async def pypi():
    async with websockets.asyncio.client.connect(URL.replace("http", "ws") + "/terminal", additional_headers=HEADERS) as peer:
        await peer.send(json.dumps({"type": "resize", "cols": 90, "rows": 20}))
        await peer.send("stty size; echo mark$((40+2))\n")
        first = (await until(peer.recv, b"mark42")).decode()
        await peer.send(json.dumps({"type": "resize", "cols": 1000, "rows": 500}))
        await peer.send(b"stty size; echo mark$((40+3))\n")
        second = (await until(peer.recv, b"mark43")).decode()
        await asyncio.wait_for(await peer.ping(b"payload"), 90)
        await peer.send("exit 7\n")
        try:
            while True:
                await asyncio.wait_for(peer.recv(), 90)
        except websockets.exceptions.ConnectionClosed:
            return {"sizes": ["20 90" in first, "500 1000" in second], "code": peer.close_code, "reason": peer.close_reason}


async def published():
    session = await TerminalSession.create(URL, Token(), TransportConfig(), cols=77, rows=11)
    await session.send("stty size; id -un; echo mark$((40+2))\n")
    text = (await until(session.receive, b"mark42")).decode()
    await session.resize(33, 22)
    await session.send_bytes(b"stty size; echo mark$((40+3))\n")
    again = (await until(session.receive, b"mark43")).decode()
    await session.close()
    return {"first": "11 77" in text and "user" in text, "second": "22 33" in again}


print(json.dumps(asyncio.run(globals()[sys.argv[1]]())))
