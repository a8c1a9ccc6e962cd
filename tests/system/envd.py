"""A plain envd client for tests: Connect JSON over http.client, so that a test sees what is on the wire."""

import base64
import http.client
import json
import struct

from waiting import BUSY_S


class EnvdError(Exception):
    """A Connect or HTTP error: status, code and message as the server gave them."""

    def __init__(self, status, code, message):
        super().__init__(f"{status} {code}: {message}")
        self.status, self.code, self.message = status, code, message


class Envd:
    """Talks to one sandbox of `service` through its gateway."""

    def __init__(self, service, box, user=None):
        self.service, self.box = service, box
        self.headers = {
            "E2b-Sandbox-Id": box["sandboxID"],
            "E2b-Sandbox-Port": "49983",
            "X-Access-Token": box.get("envdAccessToken") or "",
        }
        if user:
            self.headers["Authorization"] = "Basic " + base64.b64encode(f"{user}:".encode()).decode()

    def connect(self, timeout):
        return http.client.HTTPConnection("127.0.0.1", self.service.port, timeout=timeout)

    def unary(self, method, message, timeout=BUSY_S):
        conn = self.connect(timeout)
        try:
            conn.request("POST", f"/{method}", json.dumps(message), {**self.headers, "Content-Type": "application/json"})
            answer = conn.getresponse()
            body = json.loads(answer.read() or b"{}")
            if answer.status != 200:
                raise EnvdError(answer.status, body.get("code"), body.get("message"))
            return body
        finally:
            conn.close()

    def stream(self, method, message, timeout=BUSY_S, headers=None):
        """Yields the messages; raises EnvdError for an error in the end frame, ConnectionError for a cut stream."""
        conn = self.connect(timeout)
        try:
            data = json.dumps(message).encode()
            sent = {**self.headers, "Content-Type": "application/connect+json", **(headers or {})}
            conn.request("POST", f"/{method}", struct.pack(">BI", 0, len(data)) + data, sent)
            answer = conn.getresponse()
            if answer.status != 200:
                body = answer.read()
                raise EnvdError(answer.status, None, body.decode(errors="replace"))
            while True:
                prefix = answer.read(5)
                if len(prefix) < 5:
                    raise ConnectionError("stream ended without an end frame")
                flags, n = struct.unpack(">BI", prefix)
                body = json.loads(answer.read(n) or b"{}")
                if flags & 2:
                    if error := body.get("error"):
                        raise EnvdError(200, error.get("code"), error.get("message"))
                    return
                yield body
        finally:
            conn.close()

    def run(self, command, timeout=BUSY_S, cmd="/bin/bash", args=None, **process):
        """(exit code, stdout, stderr) of a bash command, or of `cmd` with `args`."""
        out, err, code = b"", b"", None
        message = {"process": {"cmd": cmd, "args": ["-c", command] if args is None else args, **process}, "stdin": False}
        for event in self.stream("process.Process/Start", message, timeout + 10, {"Connect-Timeout-Ms": str(timeout * 1000)}):
            event = event["event"]
            data = event.get("data", {})
            out += base64.b64decode(data.get("stdout", ""))
            err += base64.b64decode(data.get("stderr", ""))
            if "end" in event:
                code = event["end"].get("exitCode", 0)
        return code, out.decode(errors="replace"), err.decode(errors="replace")

    def sh(self, command, timeout=BUSY_S):
        """stdout of a command that must succeed."""
        code, out, err = self.run(command, timeout)
        assert code == 0, (command, code, out, err)
        return out

    def write(self, path, data, timeout=BUSY_S):
        conn = self.connect(timeout)
        try:
            conn.request("POST", f"/files?path={path}", data, {**self.headers, "Content-Type": "application/octet-stream"})
            answer = conn.getresponse()
            body = answer.read()
            if answer.status != 200:
                raise EnvdError(answer.status, None, body.decode(errors="replace"))
            return json.loads(body)
        finally:
            conn.close()

    def read(self, path, timeout=BUSY_S):
        conn = self.connect(timeout)
        try:
            conn.request("GET", f"/files?path={path}", headers=self.headers)
            answer = conn.getresponse()
            body = answer.read()
            if answer.status != 200:
                raise EnvdError(answer.status, None, body.decode(errors="replace"))
            return body
        finally:
            conn.close()
