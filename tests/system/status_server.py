"""A server that answers as it is asked to: with the status of X-Want-Status, or by the id in E2b-Sandbox-Id.

`sb404`: that status with a JSON error; `code-not_found`: the Connect error of that code, for unary calls and in the end of a
stream. POST /sandboxes/{id}/connect without X-Want-Status makes a sandbox of that id.
"""

import json
import struct
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

HTTP_OF_CODE = {
    "canceled": 499, "invalid_argument": 400, "deadline_exceeded": 504, "not_found": 404, "already_exists": 409,
    "permission_denied": 403, "resource_exhausted": 429, "failed_precondition": 400, "aborted": 409, "out_of_range": 400,
    "unimplemented": 501, "unavailable": 503, "unauthenticated": 401,
}  # fmt: skip


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def send(self, status, body, kind="application/json", **headers):
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(data)))
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()
        self.wfile.write(data)

    def answer(self):
        if "chunked" in self.headers.get("Transfer-Encoding", ""):
            while size := int(self.rfile.readline().split(b";")[0], 16):
                self.rfile.read(size + 2)
            self.rfile.readline()  # what stays makes the server close the connection, maybe while the next request comes
        self.rfile.read(int(self.headers.get("Content-Length") or 0))
        want = self.headers.get("X-Want-Status")
        sandbox = self.headers.get("E2b-Sandbox-Id") or ""
        if want:
            self.send(int(want), {"code": int(want), "message": f"status {want}"}, Should_Retry="false")
        elif sandbox.startswith("sb"):
            self.send(int(sandbox[2:]), {"code": int(sandbox[2:]), "message": f"status {sandbox[2:]}"}, Should_Retry="false")
        elif sandbox.startswith("code-"):
            self.connect_error(sandbox[5:])
        else:
            name = self.path.split("?")[0].split("/")[-2]
            made = {"sandboxID": name, "templateID": "t", "clientID": "c", "envdVersion": "0.6.4", "envdAccessToken": "t"}
            self.send(200, made)

    do_GET = do_POST = do_DELETE = do_PUT = answer

    def connect_error(self, code):
        error = {"code": code, "message": f"code {code}"}
        if self.headers.get("Content-Type", "").startswith("application/connect+"):
            body = json.dumps({"error": error}).encode()
            self.send(200, struct.pack(">BI", 2, len(body)) + body, "application/connect+json")
        else:
            self.send(HTTP_OF_CODE.get(code, 500), error, Should_Retry="false")


class StatusServer:
    """Context manager; `origin` is its URL."""

    def __enter__(self):
        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.origin = f"http://127.0.0.1:{self.server.server_port}"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *_):
        self.server.shutdown()
        self.server.server_close()
