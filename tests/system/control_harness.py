"""A real abx-control over its real sockets, with an engine and gateways played by this process.

The messages of schema/ipc.proto are few and flat: a small codec for protobuf's wire form is enough.
"""

import http.client
import json
import os
import signal
import socket
import subprocess
import threading
from pathlib import Path

from waiting import BUSY_S, until

# Field numbers of Frame's bodies, and of the messages that are used here.
ERROR, HELLO, HELLO_REPLY = 10, 11, 12
CREATE, CREATE_REPLY, KILL, KILL_REPLY, LIST, LIST_REPLY = 20, 21, 22, 23, 24, 25
TEMPLATES, TEMPLATES_REPLY, AUDIT, AUDIT_REPLY, DIED = 26, 27, 32, 33, 40
MEASURE, MEASURE_REPLY = 41, 42
CLONE, CLONE_REPLY = 38, 39
FREEZE, FREEZE_REPLY, STOP, STOP_REPLY = 28, 29, 36, 37
HOLD, HOLD_DONE, WAKE, HEALTH, HEALTH_REPLY = 67, 68, 69, 76, 77
ENTRY, REMOVE, REMOVE_DONE, TABLE_SYNCED, LOOKUP, LOOKUP_REPLY, ENTRY_DONE = 60, 61, 62, 63, 64, 65, 66
ADMIN, ADMIN_REPLY, LOG = 70, 71, 73
RUNNING = 2


def varint(n):
    out = bytearray()
    while n > 127:
        out.append(n & 127 | 128)
        n >>= 7
    out.append(n)
    return bytes(out)


def encode(fields):
    """{number: int | str | bytes | dict | list of these} in protobuf's wire form."""
    out = bytearray()
    for number, value in fields.items():
        for v in value if isinstance(value, list) else [value]:
            if isinstance(v, (bool, int)):
                out += varint(number << 3) + varint(int(v))
                continue
            raw = encode(v) if isinstance(v, dict) else v.encode() if isinstance(v, str) else v
            out += varint(number << 3 | 2) + varint(len(raw)) + raw
    return bytes(out)


def decode(data):
    """{number: [int | bytes]}"""
    fields, at = {}, 0

    def number():
        nonlocal at
        n = shift = 0
        while True:
            byte = data[at]
            at += 1
            n |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                return n

    while at < len(data):
        key = number()
        if key & 7 == 0:
            value = number()
        else:
            assert key & 7 == 2, key
            size = number()
            value = data[at : at + size]
            at += size
        fields.setdefault(key >> 3, []).append(value)
    return fields


def text(fields, number):
    return fields.get(number, [b""])[0].decode()


class Frame:
    def __init__(self, data):
        fields = decode(data)
        self.version = fields.get(1, [0])[0]
        self.seq = fields.get(2, [0])[0]
        self.request_id = text(fields, 3)
        self.kind = max(fields)
        self.body = decode(fields[self.kind][0])


def frame(kind, body, seq=0):
    return encode({1: 1, 2: seq, kind: encode(body)})


class Engine:
    """The engine's side of its socket for control. `on_create(id)` may return an error (code, text), or block."""

    def __init__(self, path):
        self.path = path
        self.sandboxes = {}
        self.creates = []
        self.kills = []
        self.creating = set()
        self.templates = {"base": "d" * 64}
        self.on_create = lambda sandbox: None
        self.on_kill = lambda sandbox: None
        self.on_clone = lambda new: None
        self.lock = threading.Condition()
        self.listener = None
        self.conns = []
        self.start()

    def start(self):
        if os.path.exists(self.path):
            os.unlink(self.path)
        self.listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.listener.bind(self.path)
        os.chmod(self.path, 0o666)
        self.listener.listen(8)
        threading.Thread(target=self.accept, args=(self.listener,), daemon=True).start()

    def stop(self):
        """Like a killed engine: connections end, sandboxes live on."""
        listener, self.listener = self.listener, None
        os.unlink(self.path)
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()
        for conn in self.conns:
            try:
                conn.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass
        self.conns = []

    def accept(self, listener):
        while True:
            try:
                conn, _ = listener.accept()
            except OSError:
                return
            self.conns.append(conn)
            threading.Thread(target=self.serve, args=(conn,), daemon=True).start()

    def serve(self, conn):
        while True:
            try:
                data = conn.recv(65536)
            except OSError:
                return
            if not data:
                return
            message = Frame(data)
            if message.kind in (CREATE, KILL, CLONE):
                threading.Thread(target=self.answer, args=(conn, message), daemon=True).start()
            else:
                self.answer(conn, message)

    def answer(self, conn, message):
        kind, body = self.reply(message)
        try:
            conn.send(frame(kind, body, message.seq))
        except OSError:
            pass

    def reply(self, message):
        body = message.body
        if message.kind == HELLO:
            return HELLO_REPLY, {1: "test", 2: "0123456789ab", 3: "boot"}
        if message.kind == CREATE:
            sandbox = text(body, 1)
            with self.lock:
                self.creates.append((sandbox, body, message.request_id))
                self.creating.add(sandbox)
                self.lock.notify_all()
            error = self.on_create(sandbox)
            with self.lock:
                self.creating.remove(sandbox)
                if not error:
                    self.sandboxes[sandbox] = body
                self.lock.notify_all()
            if error:
                return ERROR, {1: error[0], 3: error[1]}
            sizes = {n - 2: body.get(n, [0])[0] for n in (3, 4, 5)}
            return CREATE_REPLY, {**sizes, 4: False, 5: [{1: "clone", 2: 700}], 6: "x-" + sandbox}
        if message.kind == KILL:
            sandbox = text(body, 1)
            with self.lock:
                self.kills.append(sandbox)
                self.lock.notify_all()
            error = self.on_kill(sandbox)
            if error:
                return ERROR, {1: error[0], 3: error[1]}
            with self.lock:
                # A kill means the sandbox that is being made too.
                self.lock.wait_for(lambda: sandbox not in self.creating)
                return KILL_REPLY, {1: self.sandboxes.pop(sandbox, None) is not None}
        if message.kind == CLONE:
            error = self.on_clone(text(body, 2))
            if error:
                return ERROR, {1: error[0], 3: error[1]}
            with self.lock:
                self.sandboxes[text(body, 2)] = {}
            return CLONE_REPLY, {}
        if message.kind in (FREEZE, STOP):
            return message.kind + 1, {}
        if message.kind == LIST:
            with self.lock:
                ids = sorted(i for i in self.sandboxes if i > text(body, 1))
            return LIST_REPLY, {1: [{1: i} for i in ids[:50]], 2: len(ids) > 50}
        if message.kind == TEMPLATES:
            rows = [{1: n, 2: d, 3: 1, 4: 1000, 7: "bookworm"} for n, d in self.templates.items()]
            return TEMPLATES_REPLY, {1: rows}
        if message.kind == AUDIT:
            return AUDIT_REPLY, {1: ["a finding"], 2: 0}
        if message.kind == MEASURE:
            return MEASURE_REPLY, {}
        return ERROR, {1: 12, 3: "unknown"}

    def die(self, sandbox, reason="exit"):
        with self.lock:
            del self.sandboxes[sandbox]
        self.conns[-1].send(frame(DIED, {1: sandbox, 2: reason}))

    def wait(self, condition, timeout=BUSY_S):
        with self.lock:
            assert self.lock.wait_for(condition, timeout), "the engine was not asked"


class Gateway:
    """A gateway's connection to the table; answers removals unless `is_deaf`. `told`: kinds of all that came."""

    def __init__(self, path):
        self.conn = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.conn.connect(path)
        self.entries, self.told, self.failures = {}, [], {}
        self.is_synced = False
        self.is_deaf = False
        self.is_closed = False
        self.lookups = {}
        self.lock = threading.Condition()
        self.conn.send(frame(HELLO, {1: "test"}, 1))
        threading.Thread(target=self.read, daemon=True).start()
        self.wait(lambda: self.is_synced)

    def read(self):
        while True:
            try:
                data = self.conn.recv(65536)
            except OSError:
                data = b""
            with self.lock:
                self.lock.notify_all()
                if not data:
                    self.is_closed = True
                    return
                message = Frame(data)
                self.told.append(message.kind)
                if message.kind in (HOLD, HEALTH):
                    self.conn.send(frame(message.kind + 1, {}, message.seq))
                elif message.kind == ERROR:
                    self.failures[message.seq] = message.body
                elif message.kind == ENTRY:
                    self.entries[text(message.body, 1)] = message.body
                    if message.seq:
                        self.conn.send(frame(ENTRY_DONE, {}, message.seq))
                elif message.kind == TABLE_SYNCED:
                    self.is_synced = True
                elif message.kind == REMOVE:
                    self.entries.pop(text(message.body, 1), None)
                    if not self.is_deaf:
                        self.conn.send(frame(REMOVE_DONE, {}, message.seq))
                elif message.kind == LOOKUP_REPLY:
                    self.lookups[message.seq] = message.body

    def look_up(self, sandbox, seq):
        self.conn.send(frame(LOOKUP, {1: sandbox}, seq))
        self.wait(lambda: seq in self.lookups)
        return self.lookups[seq]

    def wait(self, condition, timeout=BUSY_S):
        with self.lock:
            assert self.lock.wait_for(condition, timeout), "the gateway was not told"


class UnixHTTP(http.client.HTTPConnection):
    def __init__(self, path, timeout=BUSY_S):
        super().__init__("127.0.0.1:19500", timeout=timeout)
        self.path = path

    def connect(self):
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self.path)


class Answer:
    def __init__(self, response):
        self.status = response.status
        self.headers = response.headers
        raw = response.read()
        self.json = json.loads(raw) if raw else None

    @property
    def message(self):
        assert self.json["code"] == self.status
        return self.json["message"]


class Control:
    """One data dir and its abx-control, which can be killed and started again."""

    def __init__(self, build_dir, folder, *options):
        self.program = Path(build_dir) / "libexec/abx-control"
        self.folder = Path(folder)
        self.options = options
        self.process = None
        (self.folder / "control").mkdir(mode=0o700)
        for option in options:
            if option.startswith("--uid="):
                os.chown(self.folder / "control", int(option[6:]), -1)
        self.engine = Engine(str(self.folder / "control/engine.sock"))
        self.listeners = {}
        for name, kind in (("http", socket.SOCK_STREAM), ("table", socket.SOCK_SEQPACKET), ("admin", socket.SOCK_SEQPACKET),
                           ("egress", socket.SOCK_SEQPACKET)):
            listener = socket.socket(socket.AF_UNIX, kind)
            listener.bind(str(self.folder / f"{name}.sock"))
            listener.listen(128)
            listener.setblocking(False)
            self.listeners[name] = listener
        self.key = None
        self.start()
        self.key = self.admin({"op": "key.create", "name": "test"})["key"]

    def start(self, wait=True):
        fds = {name: listener.fileno() for name, listener in self.listeners.items()}
        self.log = open(self.folder / "log", "ab")
        self.process = subprocess.Popen(
            [
                self.program,
                f"--data-dir={self.folder}",
                *(f"--{name}-fd={fd}" for name, fd in fds.items()),
                f"--engine-sock={self.folder}/control/engine.sock",
                "--instance=0123456789ab",
                "--listen-origin=http://127.0.0.1:19500",
                *self.options,
            ],
            pass_fds=fds.values(),
            stderr=self.log,
        )
        if wait:
            self.wait_up()

    def wait_up(self):
        until(lambda: self.admin({"op": "info"})["engine_up"], "that control finds the engine")

    def kill(self, signo=signal.SIGKILL):
        self.process.send_signal(signo)
        return self.process.wait(BUSY_S)

    def restart(self, wait=True):
        self.kill()
        self.start(wait)

    def close(self):
        if self.process.poll() is None:
            self.kill()
        if self.engine.listener:
            self.engine.stop()
        for listener in self.listeners.values():
            listener.close()

    def admin(self, request):
        conn = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        conn.settimeout(BUSY_S)
        conn.connect(str(self.folder / "admin.sock"))
        conn.send(frame(ADMIN, {1: json.dumps(request)}, 7))
        message = Frame(conn.recv(65536))
        conn.close()
        assert (message.kind, message.seq) == (ADMIN_REPLY, 7)
        return json.loads(text(message.body, 1))

    def http(self):
        return UnixHTTP(str(self.folder / "http.sock"))

    def gateway(self):
        return Gateway(str(self.folder / "table.sock"))

    def egress(self):
        """Has the same conversation at a socket of its own."""
        return Gateway(str(self.folder / "egress.sock"))

    def ask(self, method, path, body=None, headers=None, conn=None):
        conn = conn or self.http()
        sent = {"X-API-Key": self.key} if self.key else {}
        sent.update(headers or {})
        conn.request(method, path, json.dumps(body) if isinstance(body, (dict, list)) else body, sent)
        return Answer(conn.getresponse())

    def create(self, expect=201, headers=None, path="/v2/sandboxes", **body):
        answer = self.ask("POST", path, {"templateID": "base", **body}, headers)
        assert answer.status == expect, answer.json
        return answer.json

    def ids(self):
        answer = self.ask("GET", "/sandboxes")
        assert answer.status == 200
        return [s["sandboxID"] for s in answer.json]
