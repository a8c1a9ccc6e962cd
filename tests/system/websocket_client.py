"""A WebSocket client of PyPI websockets for test_gateway_websocket.py: plays one scenario, prints its result as JSON.
usage: websocket_client.py SCENARIO URL [CA-FILE]; PEER_ADDRESS=HOST:PORT is where to connect whatever the URL says."""

import asyncio
import json
import os
import ssl
import sys

import websockets.asyncio.client
import websockets.exceptions

HOST, PORT = os.environ["PEER_ADDRESS"].rsplit(":", 1)


def connect(path, **more):
    url, tls = sys.argv[2] + path, None
    if sys.argv[3:]:
        tls = ssl.create_default_context(cafile=sys.argv[3])
    return websockets.asyncio.client.connect(url, host=HOST, port=int(PORT), ssl=tls, max_size=None, proxy=None, **more)


async def echo():
    """Messages around the borders of the frame's length forms, and one far larger than any buffer on the way."""
    async with connect("/echo") as peer:
        for n in (0, 1, 125, 126, 127, 65535, 65536, 300_000, 5_000_000):
            data = os.urandom(n)
            await peer.send(data)
            assert await peer.recv() == data, n
        await peer.send("text \u00fc")
        assert await peer.recv() == "text \u00fc"
        await asyncio.wait_for(await peer.ping(b"payload"), 60)
    return {"code": peer.close_code}


async def close():
    async with connect("/close") as peer:
        try:
            await peer.recv()
        except websockets.exceptions.ConnectionClosed:
            return {"code": peer.close_code, "reason": peer.close_reason}


async def cut():
    async with connect("/cut") as peer:
        first = await peer.recv()
        try:
            await peer.recv()
        except websockets.exceptions.ConnectionClosed:
            return {"first": first, "code": peer.close_code}


async def subprotocol():
    async with connect("/headers", subprotocols=["two"]) as peer:
        return {"chosen": peer.subprotocol, "headers": eval(await peer.recv())}


async def refuse():
    try:
        async with connect("/refuse"):
            return {}
    except websockets.exceptions.InvalidStatus as e:
        return {"status": e.response.status_code, "body": e.response.body.decode()}


async def flood():
    """32 MiB to a reader that begins late."""
    async with connect("/flood", max_queue=1) as peer:
        await asyncio.sleep(0.5)
        for number in range(2000):
            assert await peer.recv() == number.to_bytes(4, "big") * 4096
    return {"messages": 2000}


async def many():
    async def one(i):
        async with connect("/echo") as peer:
            for j in range(20):
                await peer.send(f"{i}/{j}")
                assert await peer.recv() == f"{i}/{j}"
        return 20

    return {"messages": sum(await asyncio.gather(*(one(i) for i in range(100))))}


async def hold():
    """Says `open`, then waits for the end of the connection."""
    async with connect("/echo", ping_interval=None) as peer:
        print("open", flush=True)
        try:
            await peer.recv()
        except websockets.exceptions.ConnectionClosed:
            return {"code": peer.close_code}


print(json.dumps(asyncio.run(asyncio.wait_for(globals()[sys.argv[1]](), 240))))
