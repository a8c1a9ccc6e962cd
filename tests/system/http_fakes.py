"""Servers that answer HTTP badly on purpose, for the tests of the client's transport, and the program that asks them.

Everything is raw bytes over asyncio in a thread of its own, so that a test decides what is sent when. Each server counts
what reached it: connections, open connections, and requests by method with their bodies' lengths.
"""

import asyncio
import json
import os
import socket
import ssl
import struct
import subprocess
import threading
from collections import Counter

import pytest
from waiting import BUSY_S

REASON = {
    "none": 0, "too_large": 2, "name": 19, "connect": 20, "tls": 21, "disconnected": 22, "protocol": 23, "timeout": 24,
}  # fmt: skip


class Loop:
    """An event loop in a thread; end it with stop()."""

    def __init__(self):
        self.loop = asyncio.new_event_loop()
        self.thread = threading.Thread(target=self.loop.run_forever, daemon=True)
        self.thread.start()

    def run(self, coroutine):
        return asyncio.run_coroutine_threadsafe(coroutine, self.loop).result(BUSY_S)

    def stop(self):
        async def cancel_all():
            tasks = [t for t in asyncio.all_tasks() if t is not asyncio.current_task()]
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

        self.run(cancel_all())
        self.loop.call_soon_threadsafe(self.loop.stop)
        self.thread.join(BUSY_S)
        self.loop.close()


class Request:
    def __init__(self, head, body_size, connection, number):
        lines = head.decode("latin-1").split("\r\n")
        self.method, self.target, self.version = lines[0].split(" ")
        self.fields = [(n.lower(), v.strip()) for n, _, v in (line.partition(":") for line in lines[1:] if line)]
        self.headers = dict(self.fields)
        self.body_size = body_size
        self.connection = connection  # from 1
        self.number = number  # on this connection, from 1


async def read_body(reader, headers):
    """Reads a body of a length or in chunks and returns how long it was."""
    total = 0
    if "content-length" in headers:
        left = int(headers["content-length"])
        while left > 0:
            data = await reader.read(min(left, 1 << 20))
            if not data:
                raise EOFError
            left -= len(data)
            total += len(data)
    elif headers.get("transfer-encoding") == "chunked":
        while True:
            size = int((await reader.readline()).split(b";")[0], 16)
            left = size + 2
            while left > 0:
                left -= len(await reader.readexactly(min(left, 1 << 20)))
            if size == 0:
                break
            total += size
    return total


class Peer:
    """A counting server. `answer(request, reader, writer)` writes what it likes; it returns True to keep the connection.
    With `reads_body` False the answer comes at the head, and the body is the answer's business."""

    def __init__(self, loop, answer, tls=None, reads_body=True):
        self.loop, self.answer, self.reads_body = loop, answer, reads_body
        self.connections = self.open = self.most_open = 0
        self.requests = []
        self.server = loop.run(asyncio.start_server(self.serve, "127.0.0.1", 0, ssl=tls, limit=1 << 20))
        self.port = self.server.sockets[0].getsockname()[1]
        self.url = f"{'https' if tls else 'http'}://127.0.0.1:{self.port}"

    def count(self, method):
        return Counter(r.method for r in self.requests)[method]

    async def serve(self, reader, writer):
        self.connections += 1
        self.open += 1
        self.most_open = max(self.most_open, self.open)
        connection, number = self.connections, 0
        try:
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                number += 1
                request = Request(head, 0, connection, number)
                self.requests.append(request)
                if self.reads_body:
                    request.body_size = await read_body(reader, request.headers)
                if not await self.answer(request, reader, writer):
                    break
        except (EOFError, ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            self.open -= 1
            writer.close()

    def stop(self):
        self.loop.loop.call_soon_threadsafe(self.server.close)


def reply(body=b"ok", status="200 OK", headers=()):
    """The bytes of a whole answer."""
    lines = [f"HTTP/1.1 {status}", f"Content-Length: {len(body)}", *headers, "", ""]
    return "\r\n".join(lines).encode() + body


def answering(data, keep=True):
    async def answer(request, reader, writer):
        writer.write(data)
        await writer.drain()
        return keep

    return answer


def reset(writer):
    """Ends a connection with RST."""
    writer.transport.abort()


class Result:
    def __init__(self, calls, run, stderr):
        self.calls, self.run, self.stderr = calls, run, stderr

    def __getitem__(self, i):
        return self.calls[i]

    def check_descriptors(self):
        """As many open files after the client was freed as before it was made."""
        before, _, after = self.run["descriptors"]
        assert before == after, self.run


def environment(env=None):
    """Nothing of ours, no proxies, no home."""
    base = {k: v for k, v in os.environ.items() if k in ("PATH", "LD_LIBRARY_PATH") or k.endswith("SAN_OPTIONS")}
    return {**base, "HOME": "/nonexistent", **(env or {})}


def exchange(build_dir, *args):
    """Runs exchange_tool; returns its lines."""
    done = subprocess.run(
        [build_dir / "tests/tools/exchange_tool", *map(str, args)],
        stdout=subprocess.PIPE, text=True, timeout=120, env=environment(), cwd="/", check=True,
    )  # fmt: skip
    return [json.loads(line) for line in done.stdout.splitlines()]


def ask(build_dir, *args, env=None, timeout=120):
    """Runs http_tool, whose environment has nothing of ours; returns its calls by index and the line of the run."""
    done = subprocess.run(
        [build_dir / "tests/tools/http_tool", *map(str, args)],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=timeout, env=environment(env), cwd="/",
    )  # fmt: skip
    assert done.returncode == 0, (done.returncode, done.stdout[-2000:], done.stderr[-4000:])
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    result = Result({c["index"]: c for c in lines[:-1]}, lines[-1], done.stderr)
    result.check_descriptors()
    return result


def make_certificates(folder, *names):
    """A private CA in ca.pem and for each name (DNS name or address) NAME.pem and NAME.key, signed by it."""

    def openssl(*args):
        subprocess.run(["openssl", *map(str, args)], check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    folder.mkdir(exist_ok=True)
    openssl("req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2", "-subj",
            "/CN=test ca", "-keyout", folder / "ca.key", "-out", folder / "ca.pem")  # fmt: skip
    for name in names:
        kind = "IP" if name[0].isdigit() else "DNS"
        (folder / "ext").write_text(f"subjectAltName={kind}:{name}\n")
        openssl("req", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-subj", f"/CN={name}",
                "-keyout", folder / f"{name}.key", "-out", folder / "csr")  # fmt: skip
        openssl("x509", "-req", "-in", folder / "csr", "-CA", folder / "ca.pem", "-CAkey", folder / "ca.key", "-days", "2",
                "-extfile", folder / "ext", "-out", folder / f"{name}.pem", "-set_serial", "7")  # fmt: skip
    return folder


class H2Peer:
    """A counting HTTP/2 server over TLS. The path says what happens: /ok, /size/N, /refuse (REFUSED_STREAM; /refuse/1 every
    second time), /reset
    (INTERNAL_ERROR), /die (the connection ends), /cut (with a TCP reset), /goaway (GOAWAY that leaves the stream out, then the end), /stall.
    With `settings_late` it reads the first request before it sends its settings, and refuses others that come before
    these are acknowledged, as a server whose limit of streams they are over."""

    def __init__(self, loop, certificates, name="127.0.0.1", settings_late=False):
        self.loop = loop
        self.settings_late = settings_late
        self.connections = self.open = 0
        self.requests = []  # (method, path, body size)
        self.server = loop.run(asyncio.start_server(self.serve, "127.0.0.1", 0, ssl=server_tls(certificates, name, "h2")))
        self.port = self.server.sockets[0].getsockname()[1]
        self.url = f"https://127.0.0.1:{self.port}"

    def stop(self):
        self.loop.loop.call_soon_threadsafe(self.server.close)

    def count(self, method):
        return sum(1 for m, _, _ in self.requests if m == method)

    async def serve(self, reader, writer):
        self.connections += 1
        self.open += 1
        try:
            await H2Connection(self, reader, writer).run()
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            self.open -= 1
            writer.close()


class H2Connection:
    def __init__(self, peer, reader, writer):
        import h2.config
        import h2.connection

        self.peer, self.reader, self.writer = peer, reader, writer
        self.h2 = h2.connection.H2Connection(h2.config.H2Configuration(client_side=False))
        self.streams = {}  # id -> [method, path, bytes of the body]
        self.sending = {}  # id -> bytes left
        self.is_known = not peer.settings_late

    async def flush(self):
        self.writer.write(self.h2.data_to_send())
        await self.writer.drain()

    async def run(self):
        if self.is_known:
            self.h2.initiate_connection()
            await self.flush()
        else:
            first = await self.reader.read(1 << 16)
            while len(first) < 80:  # preface, settings and the window's size come before the request
                first += await self.reader.read(1 << 16)
            await asyncio.sleep(0.05)
            self.h2.initiate_connection()
            for event in self.h2.receive_data(first):
                self.on_event(event)
            self.send_more()
            await self.flush()
        while data := await self.reader.read(1 << 16):
            for event in self.h2.receive_data(data):
                if not self.on_event(event):
                    return
            self.send_more()
            await self.flush()

    def on_event(self, event):
        import h2.events

        if isinstance(event, h2.events.SettingsAcknowledged):
            self.is_known = True
        elif isinstance(event, h2.events.RequestReceived):
            fields = {bytes(k): bytes(v) for k, v in event.headers}
            self.streams[event.stream_id] = [fields[b":method"].decode(), fields[b":path"].decode(), 0]
        elif isinstance(event, h2.events.DataReceived):
            self.streams[event.stream_id][2] += len(event.data)
            self.h2.acknowledge_received_data(event.flow_controlled_length, event.stream_id)
        elif isinstance(event, h2.events.StreamEnded):
            return self.answer(event.stream_id)
        elif isinstance(event, h2.events.StreamReset):
            self.sending.pop(event.stream_id, None)
        return True

    def answer(self, stream):
        import h2.errors

        method, path, size = self.streams[stream]
        self.peer.requests.append((method, path, size))
        is_early = not self.is_known and stream != 1
        if path == "/refuse" or is_early or (path == "/refuse/1" and len(self.peer.requests) % 2):
            self.h2.reset_stream(stream, h2.errors.ErrorCodes.REFUSED_STREAM)
        elif path == "/reset":
            self.h2.reset_stream(stream, h2.errors.ErrorCodes.INTERNAL_ERROR)
        elif path in ("/die", "/cut"):
            if path == "/cut":
                self.writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            self.writer.transport.abort()
            return False
        elif path == "/goaway":
            self.h2.close_connection(last_stream_id=max(stream - 2, 0))
            self.writer.write(self.h2.data_to_send())
            return False
        elif path != "/stall":
            left = int(path.split("/")[2]) if path.startswith("/size/") else 2
            self.h2.send_headers(stream, [(":status", "200"), ("content-length", str(left))])
            self.sending[stream] = left
        return True

    def send_more(self):
        for stream, left in list(self.sending.items()):
            while left > 0:
                n = min(left, self.h2.local_flow_control_window(stream), self.h2.max_outbound_frame_size)
                if n <= 0:
                    break
                left -= n
                self.h2.send_data(stream, b"x" * n, end_stream=left == 0)
            self.sending[stream] = left
            if left == 0:
                del self.sending[stream]


def server_tls(certificates, name, *alpn):
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificates / f"{name}.pem", certificates / f"{name}.key")
    if alpn:
        context.set_alpn_protocols(list(alpn))
    return context


# ---- fixtures ----


@pytest.fixture(scope="module")
def loop():
    it = Loop()
    yield it
    it.stop()


@pytest.fixture
def peer(loop):
    """Makes servers with the given answer."""
    peers = []

    def make(answer, **options):
        peers.append(Peer(loop, answer, **options))
        return peers[-1]

    yield make
    for p in peers:
        p.stop()
