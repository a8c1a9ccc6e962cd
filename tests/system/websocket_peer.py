"""A WebSocket server of PyPI websockets, on the listening socket that it is given as a descriptor or on one of its own;
prints its port, ends at the end of its input. usage: websocket_peer.py [FD]"""

import asyncio
import http
import socket
import sys

import websockets.asyncio.server


async def behave(peer):
    path = peer.request.path
    if path == "/echo":
        async for message in peer:
            await peer.send(message)
    elif path == "/fragments":
        await peer.send(["a", "\u00fc", "", "c"])
        await peer.send([b"\x00", b"\xff"])
    elif path == "/ping":
        await asyncio.wait_for(await peer.ping(b"are you there"), 60)
        await peer.send("pong came")
    elif path == "/close":
        await peer.close(4321, "enough \u00fc")
    elif path == "/cut":
        await peer.send("first")
        peer.transport.abort()
    elif path == "/large":
        await peer.send(b"x" * 200_000)
    elif path == "/flood":
        for number in range(2000):
            await peer.send(number.to_bytes(4, "big") * 4096)
    elif path == "/count":
        total = 0
        async for message in peer:
            total += len(message)
            if message == "end":
                await peer.send(str(total))
    elif path == "/headers":
        await peer.send(repr(sorted((k.lower(), v) for k, v in peer.request.headers.raw_items())))
        await peer.wait_closed()


def refuse(peer, request):
    if request.path == "/refuse":
        return peer.respond(http.HTTPStatus.UNAUTHORIZED, "who are you?")
    if request.path == "/gone":
        return peer.respond(http.HTTPStatus.BAD_GATEWAY, '{"message":"The sandbox was not found","code":502}')
    return None


async def main():
    options = {"process_request": refuse, "subprotocols": ["one", "two"], "max_size": None, "ping_interval": None}
    options["select_subprotocol"] = lambda peer, offered: offered[0] if offered else None
    where = {"sock": socket.socket(fileno=int(sys.argv[1]))} if sys.argv[1:] else {"host": "127.0.0.1", "port": 0}
    async with websockets.asyncio.server.serve(behave, **where, **options) as server:
        print(server.sockets[0].getsockname()[1], flush=True)
        await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)


asyncio.run(main())
