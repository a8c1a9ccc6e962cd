"""A server that takes requests and never ends an answer: commands and watches start, everything else gets no byte."""

import json
import socket
import struct
import threading

STREAMS = {
    "/process.Process/Start": {"event": {"start": {"pid": 7}}},
    "/process.Process/Connect": {"event": {"start": {"pid": 7}}},
    "/filesystem.Filesystem/WatchDir": {"start": {}},
}


class StallServer:
    """Context manager. `asked` is set by the first whole request, `left` when its sender hung up; `requests` has all."""

    def __init__(self):
        self.asked = threading.Event()
        self.left = threading.Event()
        self.requests = []
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.origin = f"http://127.0.0.1:{self.listener.getsockname()[1]}"
        self.connections = []

    def __enter__(self):
        threading.Thread(target=self.accept, daemon=True).start()
        return self

    def __exit__(self, *_):
        self.listener.close()
        for connection in self.connections:
            connection.close()

    def accept(self):
        while True:
            try:
                connection, _ = self.listener.accept()
            except OSError:
                return
            self.connections.append(connection)
            threading.Thread(target=self.serve, args=(connection,), daemon=True).start()

    def serve(self, connection):
        try:
            data = b""
            while b"\r\n\r\n" not in data:
                piece = connection.recv(65536)
                if not piece:
                    return
                data += piece
            method, path, _ = data.split(b"\r\n", 1)[0].decode().split(" ")
            self.requests.append((method, path))
            start = STREAMS.get(path.split("?")[0])
            if start is not None:
                body = json.dumps(start).encode()
                frame = struct.pack(">BI", 0, len(body)) + body
                head = "HTTP/1.1 200 OK\r\nContent-Type: application/connect+json\r\nTransfer-Encoding: chunked\r\n\r\n"
                connection.sendall(head.encode() + f"{len(frame):x}\r\n".encode() + frame + b"\r\n")
            elif method == "GET" and path.startswith("/files"):
                connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\nbegin")
            self.asked.set()
            while connection.recv(65536):
                pass
            self.left.set()
        except OSError:
            self.left.set()
