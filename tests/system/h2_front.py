"""A TLS server that passes each HTTP/2 stream to an HTTP/1.1 origin, as a load balancer would: with flow control both
ways; a reset of one side ends the other. Connections that choose HTTP/1.1 are passed on as they are."""

import asyncio

from http_fakes import server_tls

HOP = {"connection", "transfer-encoding", "keep-alive", "host"}


class H2Front:
    """Runs in `loop` (http_fakes.Loop); `streams` counts requests, `connections` connections."""

    def __init__(self, loop, certificates, origin_port, name="127.0.0.1"):
        self.loop, self.origin_port, self.streams, self.connections = loop, origin_port, 0, 0
        tls = server_tls(certificates, name, "h2", "http/1.1")
        self.server = loop.run(asyncio.start_server(self._serve, "127.0.0.1", 0, ssl=tls))
        self.port = self.server.sockets[0].getsockname()[1]

    def stop(self):
        async def close():
            self.server.close()

        self.loop.run(close())

    async def _serve(self, reader, writer):
        self.connections += 1
        if writer.get_extra_info("ssl_object").selected_alpn_protocol() == "h2":
            await Connection(self, reader, writer).run()
        else:
            origin_reader, origin_writer = await asyncio.open_connection("127.0.0.1", self.origin_port)
            await asyncio.gather(copy(reader, origin_writer), copy(origin_reader, writer))


async def copy(reader, writer):
    try:
        while data := await reader.read(65536):
            writer.write(data)
            await writer.drain()
    except OSError:
        pass
    finally:
        writer.close()


class Connection:
    def __init__(self, front, reader, writer):
        import h2.config
        import h2.connection

        self.front, self.reader, self.writer = front, reader, writer
        self.h2 = h2.connection.H2Connection(h2.config.H2Configuration(client_side=False, header_encoding="latin-1"))
        self.bodies, self.tasks, self.moved = {}, {}, asyncio.Event()

    async def run(self):
        self.h2.initiate_connection()
        self.flush()
        try:
            while data := await self.reader.read(65536):
                for event in self.h2.receive_data(data):
                    self.on_event(event)
                self.flush()
        except (OSError, asyncio.CancelledError):
            pass
        finally:
            for task in self.tasks.values():
                task.cancel()
            self.writer.close()

    def flush(self):
        self.writer.write(self.h2.data_to_send())

    def on_event(self, event):
        import h2.events

        stream = getattr(event, "stream_id", None)
        if isinstance(event, h2.events.RequestReceived):
            self.front.streams += 1
            self.bodies[stream] = asyncio.Queue()
            self.tasks[stream] = asyncio.ensure_future(self.relay(stream, dict(event.headers)))
        elif isinstance(event, h2.events.DataReceived):
            self.bodies[stream].put_nowait((event.data, event.flow_controlled_length))
        elif isinstance(event, h2.events.StreamEnded):
            self.bodies[stream].put_nowait((None, 0))
        elif isinstance(event, h2.events.StreamReset):
            self.tasks[stream].cancel()
        elif isinstance(event, (h2.events.WindowUpdated, h2.events.RemoteSettingsChanged)):
            self.moved.set()

    async def upload(self, stream, writer, chunked):
        while True:
            data, counted = await self.bodies[stream].get()
            if data is None:
                break
            writer.write(b"%x\r\n%s\r\n" % (len(data), data) if chunked else data)
            await writer.drain()
            if counted:  # only what the origin took makes room for more
                self.h2.acknowledge_received_data(counted, stream)
                self.flush()
        writer.write(b"0\r\n\r\n" if chunked else b"")

    async def send(self, stream, data):
        while data:
            room = min(self.h2.local_flow_control_window(stream), self.h2.max_outbound_frame_size, len(data))
            if room <= 0:
                self.moved.clear()
                await self.moved.wait()
                continue
            self.h2.send_data(stream, data[:room])
            self.flush()
            await self.writer.drain()
            data = data[room:]

    async def relay(self, stream, fields):
        import h2.errors

        writer = sender = None
        try:
            reader, writer = await asyncio.open_connection("127.0.0.1", self.front.origin_port)
            chunked = "content-length" not in fields and fields[":method"] == "POST"
            head = [f"{fields[':method']} {fields[':path']} HTTP/1.1", f"Host: {fields[':authority']}", "Connection: close"]
            head += [f"{k}: {v}" for k, v in fields.items() if k[0] != ":" and k not in HOP]
            head += ["Transfer-Encoding: chunked"] if chunked else []
            writer.write("\r\n".join(head).encode("latin-1") + b"\r\n\r\n")
            sender = asyncio.ensure_future(self.upload(stream, writer, chunked))
            await self.download(stream, reader)
            self.h2.end_stream(stream)
        except (OSError, EOFError):
            self.h2.reset_stream(stream, h2.errors.ErrorCodes.INTERNAL_ERROR)
        finally:
            if sender:
                sender.cancel()
            if writer:
                writer.close()
            self.flush()

    async def download(self, stream, reader):
        lines = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")[:-4].split("\r\n")
        fields = [(k.lower(), v.strip()) for k, _, v in (line.partition(":") for line in lines[1:])]
        self.h2.send_headers(stream, [(":status", lines[0].split()[1])] + [f for f in fields if f[0] not in HOP])
        self.flush()
        if dict(fields).get("transfer-encoding") == "chunked":
            while size := int(await reader.readline(), 16):
                await self.send(stream, (await reader.readexactly(size + 2))[:-2])
            return
        left = int(dict(fields).get("content-length", 0))
        while left > 0:
            data = await reader.read(min(left, 65536))
            if not data:
                raise EOFError
            await self.send(stream, data)
            left -= len(data)
