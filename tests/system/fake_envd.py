"""An envd that does what a test tells it to, right or wrong, over plain asyncio streams.

A script is a coroutine `script(peer)`; it runs for each request that is not GET /health. `peer.seen` has the
request. What a script leaves open is closed when it returns.
"""

import asyncio
import base64
import json
import socket
import struct
import threading

from waiting import BUSY_S


def envelope(message, flags=0):
    data = message if isinstance(message, bytes) else json.dumps(message).encode()
    return bytes([flags]) + len(data).to_bytes(4, "big") + data


def event(**kind):
    """An event of process.Process as JSON."""
    return envelope({"event": kind})


START = event(start={"pid": 7})
END = event(end={"exited": True, "status": "exit status 0"})
DONE = envelope({}, 2)


def output(data, stream="stdout"):
    return event(data={stream: base64.b64encode(data).decode()})


class Request:
    def __init__(self, method, path, headers, body):
        self.method, self.path, self.headers, self.body = method, path, headers, body

    def message(self):
        """The JSON of a unary request or of the only envelope of a stream."""
        return json.loads(self.body[5:] if "connect+" in self.headers["content-type"] else self.body)


class Peer:
    """One connection with the request on it."""

    def __init__(self, server, seen, reader, writer):
        self.server, self.seen, self.reader, self.writer = server, seen, reader, writer
        self.keeps = False  # a script that sets it leaves the connection open for the next request

    async def send(self, data):
        self.writer.write(data)
        await self.writer.drain()

    async def head(self, status=200, content_type="application/connect+json", length=None, **headers):
        lines = [f"HTTP/1.1 {status} X", f"Content-Type: {content_type}"]
        lines += [] if self.keeps else ["Connection: close"]
        lines += [f"{k.replace('_', '-')}: {v}" for k, v in headers.items()]
        lines.append("Transfer-Encoding: chunked" if length is None else f"Content-Length: {length}")
        await self.send("\r\n".join(lines).encode() + b"\r\n\r\n")

    async def chunk(self, data):
        await self.send(b"%x\r\n%s\r\n" % (len(data), data))

    async def end(self):
        await self.send(b"0\r\n\r\n")

    async def answer(self, body, status=200, content_type="application/json", **headers):
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        await self.head(status, content_type, len(data), **headers)
        await self.send(data)

    async def stream(self, *messages, end=True):
        await self.head()
        for message in messages:
            await self.chunk(message)
        if end:
            await self.end()

    async def stall(self):
        """Until the client goes away."""
        while await self.reader.read(65536):
            pass

    def reset(self):
        sock = self.writer.get_extra_info("socket")
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.writer.transport.abort()


class FakeEnvd:
    """Listens on a port of its own; `requests` are those that came, health checks are counted in `health_checks`."""

    def __init__(self):
        self.script, self.requests, self.health_checks = None, [], 0
        self.health = (204, b"")  # status and body of GET /health; None = no answer
        self.loop = asyncio.new_event_loop()
        self.thread = threading.Thread(target=self._run, daemon=True)
        self.ready = threading.Event()
        self.thread.start()
        assert self.ready.wait(BUSY_S)

    def _run(self):
        asyncio.set_event_loop(self.loop)
        self.server = self.loop.run_until_complete(asyncio.start_server(self._serve, "127.0.0.1", 0))
        self.port = self.server.sockets[0].getsockname()[1]
        self.ready.set()
        self.loop.run_forever()

    def close(self):
        def stop():
            self.server.close()
            for task in asyncio.all_tasks(self.loop):
                task.cancel()
            self.loop.call_soon(self.loop.stop)

        self.loop.call_soon_threadsafe(stop)
        self.thread.join(BUSY_S)
        self.loop.close()

    async def _read(self, reader):
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
        first, *fields = head[:-4].split("\r\n")
        method, path, _ = first.split(" ")
        headers = {k.lower(): v.strip() for k, _, v in (f.partition(":") for f in fields)}
        body = b""
        if headers.get("transfer-encoding") == "chunked":
            while size := int(await reader.readline(), 16):
                body += await reader.readexactly(size + 2)
                body = body[:-2]
            await reader.readline()
        elif "content-length" in headers:
            body = await reader.readexactly(int(headers["content-length"]))
        return Request(method, path, headers, body)

    async def _serve(self, reader, writer):
        try:
            while True:
                seen = await self._read(reader)
                peer = Peer(self, seen, reader, writer)
                if seen.path == "/health":
                    self.health_checks += 1
                    peer.keeps = True
                    if self.health is None:
                        await peer.stall()
                    await peer.answer(self.health[1], self.health[0])
                    continue
                self.requests.append(seen)
                await self.script(peer)
                if not peer.keeps:
                    return
        except (OSError, EOFError, asyncio.CancelledError):
            pass
        finally:
            writer.close()


GONE = (502, b'{"sandboxId":"i1","message":"The sandbox was not found","code":502}')
PORT_CLOSED = (502, b'{"sandboxId":"i1","message":"The sandbox is running but port is not open","port":49983,"code":502}')
