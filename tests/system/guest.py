"""Runs the real abx-guest through guest_tool and talks to it as a client does; standard library only."""

import base64
import http.client
import json
import socket
import struct
import subprocess

import processes
import sanitizers
from waiting import until

TOKEN = "0123456789abcdef" * 4
ACCOUNTS = {
    "passwd": "root:x:0:0:root:/root:/bin/bash\nuser:x:1000:1000::/home/user:/bin/bash\n"
    "other:x:1001:1001::/home/other:/bin/sh\nbroken line\n:x:5:5:::\n",
    "group": "root:x:0:\nuser:x:1000:\nother:x:1001:\nstaff:x:50:user,other\naudio:x:63:user\n",
}


def proto(number, value):
    """One protobuf field: int as varint, bytes and str as length-delimited."""
    if isinstance(value, int):
        return varint(number << 3) + varint(value)
    data = value.encode() if isinstance(value, str) else value
    return varint(number << 3 | 2) + varint(len(data)) + data


def varint(n):
    out = bytearray()
    while n > 127:
        out.append(n & 127 | 128)
        n >>= 7
    out.append(n)
    return bytes(out)


def identity(**over):
    """A GuestFrame with an identity."""
    fields = {"sandbox_id": "itest", "template_id": "base", "access_token": TOKEN, "envs": {}, "user": "", "workdir": ""}
    fields.update(over)
    body = proto(1, fields["sandbox_id"]) + proto(2, fields["template_id"]) + proto(3, fields["access_token"])
    for key, value in fields["envs"].items():
        body += proto(4, proto(1, key) + proto(2, value))
    body += proto(5, fields["user"]) + proto(6, fields["workdir"])
    return proto(1, 1) + proto(2, body)


class RpcError(Exception):
    def __init__(self, code, message, status):
        super().__init__(f"{code}: {message}")
        self.code, self.message, self.status = code, message, status


def envelope(data, flags=0):
    return struct.pack(">BI", flags, len(data)) + data


class Stream:
    """A running server stream of JSON messages."""

    def __init__(self, guest, path, message, user=None, headers=None, rcvbuf=None):
        self.connection = guest.connection(rcvbuf=rcvbuf)
        all_headers = guest.headers("application/connect+json", user) | (headers or {})
        self.connection.request("POST", path, envelope(json.dumps(message).encode()), all_headers)
        self.response = self.connection.getresponse()
        self.headers = self.response.headers
        if self.response.status != 200:
            raise RpcError("http", self.response.read().decode(), self.response.status)
        self.trailer = None

    def __iter__(self):
        return self

    def __next__(self):
        head = self._read(5)
        flags, n = struct.unpack(">BI", head)
        message = json.loads(self._read(n))
        if not flags & 2:
            return message
        self.trailer = message
        assert self.response.read() == b""
        if "error" in message:
            raise RpcError(message["error"]["code"], message["error"].get("message", ""), 200)
        raise StopIteration

    def _read(self, n):
        data = b""
        while len(data) < n:
            part = self.response.read(n - len(data))
            assert part, "the stream is cut"
            data += part
        return data

    def close(self):
        self.connection.close()


class Process(Stream):
    """Start or Connect: pid is known, wait() gathers the rest."""

    def __init__(self, guest, method, message, **kw):
        super().__init__(guest, f"/process.Process/{method}", message, **kw)
        self.guest = guest
        self.pid = next(self)["event"]["start"]["pid"]

    def until_output(self, text, stream="stdout"):
        """Reads until what came on the stream holds the text."""
        got = b""
        for message in self:
            data = message["event"].get("data", {}).get(stream)
            got += base64.b64decode(data) if data else b""
            if text in got:
                return
        raise AssertionError(got)

    def wait(self, keep=True):
        out = {"stdout": bytearray(), "stderr": bytearray(), "pty": bytearray()}
        result = {"keepalives": 0, "end": None}
        for message in self:
            event = message["event"]
            if "data" in event:
                for name, data in event["data"].items():
                    if keep:
                        out[name] += base64.b64decode(data)
            elif "keepalive" in event:
                result["keepalives"] += 1
            else:
                assert result["end"] is None
                result["end"] = event["end"]
        assert result["end"] is not None
        result.update({k: bytes(v) for k, v in out.items()})
        result["code"] = result["end"].get("exitCode", 0)
        self.close()
        return result


def image(build):
    """The build's own abx-guest, also where it is not the one for sandboxes (meson_options.txt: guest_file)."""
    own = build / "tests/tools/abx-guest"
    return own if own.exists() else build / "libexec/abx-guest"


class Guest:
    def __init__(self, build, tmp, port):
        self.port = port
        self.name = f"abx-guest-test-{port}"
        for name, text in ACCOUNTS.items():
            (tmp / name).write_text(text)
        self.tool = subprocess.Popen(
            [build / "tests/tools/guest_tool", image(build), str(port), self.name, tmp],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        line = self.tool.stdout.readline().split()
        assert line and line[0] == b"ready", line
        self.init_pid = int(line[1])
        self.token = TOKEN

    def stop(self):
        self.tool.stdin.close()
        assert self.tool.wait(60) == 0

    def claim(self, **over):
        control = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        control.connect("\0" + self.name)
        control.send(identity(**over))
        control.close()
        self.token = over.get("access_token", TOKEN)

    def connection(self, rcvbuf=None):
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        if rcvbuf:
            s = socket.socket()
            s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, rcvbuf)
            s.settimeout(60)
            s.connect(("127.0.0.1", self.port))
            connection.sock = s
        return connection

    def headers(self, content_type=None, user=None):
        headers = {"X-Access-Token": self.token} if self.token else {}
        if content_type:
            headers["Content-Type"] = content_type
        if user is not None:
            headers["Authorization"] = "Basic " + base64.b64encode(f"{user}:".encode()).decode()
        return headers

    def http(self, method, target, body=None, headers=None, token=True):
        """(status, headers, body) of one request on a connection of its own."""
        connection = self.connection()
        connection.request(method, target, body, (self.headers() if token else {}) | (headers or {}))
        response = connection.getresponse()
        data = response.read()
        connection.close()
        return response.status, response.headers, data

    def rpc(self, method, message, user=None):
        service = "filesystem.Filesystem" if method in FILESYSTEM else "process.Process"
        status, headers, body = self.http(
            "POST", f"/{service}/{method}", json.dumps(message), self.headers("application/json", user)
        )
        answer = json.loads(body)
        if status != 200:
            raise RpcError(answer["code"], answer.get("message", ""), status)
        assert headers["Content-Type"] == "application/json"
        return answer

    def start(self, *argv, user=None, headers=None, rcvbuf=None, **over):
        config = {"cmd": argv[0], "args": list(argv[1:])}
        config.update({k: over.pop(k) for k in ("envs", "cwd") if k in over})
        return Process(self, "Start", {"process": config} | over, user=user, headers=headers, rcvbuf=rcvbuf)

    def connect(self, pid, headers=None, rcvbuf=None):
        return Process(self, "Connect", {"process": {"pid": pid}}, headers=headers, rcvbuf=rcvbuf)

    def run(self, *argv, **over):
        return self.start(*argv, **over).wait()

    def sh_start(self, script, **over):
        return self.start("/bin/bash", "-c", script, **over)

    def sh(self, script, **over):
        return self.run("/bin/bash", "-c", script, **over)

    def send(self, pid, data):
        return self.rpc("SendInput", {"process": {"pid": pid}, "input": {"stdin": base64.b64encode(data).decode()}})

    def pids(self):
        return sorted(p["pid"] for p in self.rpc("List", {}).get("processes", []))

    def processes(self):
        """pid -> (name, host pid) of everything in the sandbox's pid namespace, seen from outside."""
        found = {}
        todo = [self.init_pid]
        while todo:
            host = todo.pop()
            if not (status := processes.read(host, "status")):
                continue
            todo += processes.children(host)
            fields = dict(line.split(":\t", 1) for line in status.splitlines() if ":\t" in line)
            found[int(fields["NSpid"].split()[-1])] = (fields["Name"], host)
        return found

    def names(self):
        """Programs in the sandbox without the supervisors."""
        return sorted(name for name, _ in self.processes().values() if name != "abx-supervisor")

    def daemon_or_none(self):
        """Host pid of the daemon."""
        found = [host for pid, (name, host) in self.processes().items() if pid != 1 and name == "abx-guest"]
        return found[0] if found else None

    def daemon(self):
        return until(self.daemon_or_none)

    def daemon_memory(self):
        """Private dirty bytes of the daemon."""
        for line in open(f"/proc/{self.daemon()}/smaps_rollup"):
            if line.startswith("Private_Dirty:"):
                return int(line.split()[1]) * 1024
        raise AssertionError("no such line")

    def is_sanitized(self):
        """Has the daemon sanitizers, so that its memory is no measure?"""
        return sanitizers.is_sanitized(self.daemon())

    def answers(self):
        try:
            return self.http("GET", "/envs")[0] == 200
        except (OSError, http.client.HTTPException):
            return False

    def connections(self):
        """TCP connections that the daemon holds."""
        rows = [line.split() for line in open(f"/proc/{self.init_pid}/net/tcp")][1:]
        return sum(r[1].endswith(f":{self.port:04X}") and r[3] not in ("0A", "06") and r[9] != "0" for r in rows)


FILESYSTEM = {"Stat", "MakeDir", "Move", "ListDir", "Remove", "WatchDir", "CreateWatcher", "GetWatcherEvents", "RemoveWatcher"}
