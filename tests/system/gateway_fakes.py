"""Control, engine and sandboxes that a real abx-gateway talks to. Needs root: each sandbox has its own network
namespace, held by a thread."""

import ctypes
import fcntl
import http.server
import json
import os
import queue
import signal
import socket
import socketserver
import struct
import subprocess
import threading

import ipc_frames as ipc
from waiting import BUSY_S

CLONE_NEWNET = 0x40000000
ENVD = 49983
RUNNING, CREATING, PAUSED, KILLING, PAUSING = 2, 1, 3, 4, 5


class Echo(http.server.BaseHTTPRequestHandler):
    """Answers with what it got as JSON."""

    protocol_version = "HTTP/1.1"
    extra = ()

    def _body(self):
        if self.headers.get("Transfer-Encoding") == "chunked":
            body = b""
            while n := int(self.rfile.readline().split(b";")[0], 16):
                body += self.rfile.read(n)
                self.rfile.readline()
            self.rfile.readline()
            return body
        return self.rfile.read(int(self.headers.get("Content-Length", 0)))

    def _answer(self):
        body = self._body()
        self.server.seen.append((self.command, self.path, len(body)))
        data = json.dumps(
            {
                "who": self.server.who,
                "method": self.command,
                "path": self.path,
                "fields": [[k.lower(), v] for k, v in self.headers.items()],
                "body": body.decode("latin-1") if len(body) < 10000 else len(body),
            }
        ).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(data)))
        self.send_header("X-Next-Token", "t")
        self.send_header("X-Hop", "1")
        self.send_header("Connection", "x-hop")
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(data)

    do_GET = do_HEAD = do_POST = do_PUT = do_DELETE = do_PATCH = _answer

    def setup(self):
        self.server.accepted += 1
        super().setup()

    def log_message(self, *args):
        pass

    def address_string(self):
        return "-"


class EchoServer(socketserver.ThreadingMixIn, socketserver.BaseServer):
    """On a listening socket that it is given."""

    daemon_threads = True

    def __init__(self, sock, who, tls=None):
        super().__init__(None, Echo)
        self.socket, self.who, self.tls = sock, who, tls
        self.seen, self.accepted = [], 0
        threading.Thread(target=self.serve_forever, args=(0.05,), daemon=True).start()

    def fileno(self):
        return self.socket.fileno()

    def get_request(self):
        conn = self.socket.accept()[0]
        if self.tls:  # shakes hands in the handler's thread
            conn = self.tls.wrap_socket(conn, server_side=True, do_handshake_on_connect=False)
        return conn, ("-", 0)

    def server_close(self):
        self.socket.close()

    def shutdown_request(self, request):
        try:
            request.shutdown(socket.SHUT_WR)
        except OSError:
            pass
        request.close()

    def close(self):
        self.shutdown()
        self.server_close()


class Sandbox:
    """A network namespace with servers in it."""

    def __init__(self, name, access_token="", traffic_token="", mask="", state=RUNNING, https=(), key="", wakes=False):
        self.name, self.state, self.https, self.key, self.wakes = name, state, https, key, wakes
        self.access_token, self.traffic_token, self.mask = access_token, traffic_token, mask
        self.work = queue.Queue()
        self.open = []
        threading.Thread(target=self._inside, daemon=True).start()
        self.inside(self._lo_up)

    def _inside(self):
        if ctypes.CDLL(None, use_errno=True).unshare(CLONE_NEWNET):
            raise OSError(ctypes.get_errno(), "unshare")
        while (job := self.work.get()) is not None:
            fn, done = job
            try:
                done.put((fn(), None))
            except BaseException as e:  # handed to the caller
                done.put((None, e))

    def inside(self, fn):
        done = queue.Queue()
        self.work.put((fn, done))
        value, error = done.get(timeout=BUSY_S)
        if error:
            raise error
        return value

    @staticmethod
    def _lo_up():
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as s:
            fcntl.ioctl(s, 0x8914, struct.pack("16sh", b"lo", 1 | 0x40))  # SIOCSIFFLAGS up, running

    def add_address(self, address):
        """Gives `lo` an IPv4 address that is not loopback's."""
        def add():
            with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as s:
                request = struct.pack("16sHH4s8x", b"lo:1", socket.AF_INET, 0, socket.inet_aton(address))
                fcntl.ioctl(s, 0x8916, request)  # SIOCSIFADDR

        self.inside(add)

    def listen(self, port, host="127.0.0.1", backlog=64):
        def make():
            s = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET)
            s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            s.bind((host, port))
            s.listen(backlog)
            return s

        s = self.inside(make)
        self.open.append(s)
        return s

    def echo(self, port=ENVD, host="127.0.0.1", tls=None):
        """`tls`: the SSLContext of a server that speaks it."""
        server = EchoServer(self.listen(port, host), f"{self.name}:{port}", tls)
        self.open.append(server)
        return server

    def sockets(self, n):
        return self.inside(lambda: [socket.socket(socket.AF_INET6) for _ in range(n)])

    def entry(self):
        return [(1, self.name), (2, self.state), (3, "default"), (4, self.access_token), (5, self.traffic_token),
                (6, self.wakes), (7, self.mask), *((8, port) for port in self.https), (10, self.key)]

    def close(self):
        for thing in self.open:
            thing.close()
        self.work.put(None)


class Control:
    """Table and REST API."""

    def __init__(self, folder):
        self.folder = folder
        self.rows = {}  # what the table has
        self.hidden = {}  # known, but only told when asked
        self.lookups, self.removed = [], queue.Queue()
        self.wakes = queue.Queue()  # (peer, sandbox's name, seq): the test answers them
        self.questions = {}  # seq: queue of its answer
        self.seq = 1000
        self.hangs = False  # takes questions and answers none
        self.fails = False  # answers questions about sandboxes with an error
        self.table = ipc.Listener(folder / "table.sock", self._serve, self._sync)
        self.http = None

    def start(self):
        path = self.folder / "control.sock"
        path.unlink(missing_ok=True)
        s = socket.socket(socket.AF_UNIX)
        s.bind(str(path))
        path.chmod(0o777)
        s.listen(64)
        self.http = EchoServer(s, "control")
        self.table.start()

    def stop(self):
        self.table.stop()
        if self.http:
            self.http.close()
            (self.folder / "control.sock").unlink()
            self.http = None

    def _sync(self, peer):
        for sandbox in list(self.rows.values()):
            peer.send(ipc.ENTRY, sandbox.entry())
        peer.send(ipc.TABLE_SYNCED, [])

    def _serve(self, peer, body, fields, seq):
        if self.hangs:
            return
        if body == ipc.LOOKUP:
            name = ipc.text(fields, 1)
            self.lookups.append(name)
            if self.fails:
                peer.send(ipc.ERROR, [(1, ipc.UNAVAILABLE), (3, "not now")], seq)
                return
            sandbox = self.rows.get(name) or self.hidden.get(name)
            peer.send(ipc.LOOKUP_REPLY, [(1, True), (2, sandbox.entry())] if sandbox else [], seq)
        elif body == ipc.REMOVE_DONE:
            self.removed.put(seq)
        elif seq in self.questions:
            self.questions.pop(seq).put((body, fields))
        elif body == ipc.WAKE:
            self.wakes.put((peer, ipc.text(fields, 1), seq))

    def put(self, sandbox):
        self.rows[sandbox.name] = sandbox
        for peer in self.table.wait_peers():
            peer.send(ipc.ENTRY, sandbox.entry())

    def ask(self, body, message, timeout=BUSY_S):
        """(body, fields) of what the gateway answers to a question of control's."""
        self.seq += 1
        answer = self.questions[self.seq] = queue.Queue()
        self.table.wait_peers()[0].send(body, message, self.seq)
        return answer.get(timeout=timeout)

    def remove(self, sandbox):
        """Returns when the gateway has said that it is done."""
        self.rows.pop(sandbox.name, None)
        self.seq += 1
        for peer in self.table.wait_peers():
            peer.send(ipc.REMOVE, [(1, sandbox.name)], self.seq)
        assert self.removed.get(timeout=BUSY_S) == self.seq


class Engine:
    def __init__(self, folder):
        self.sandboxes, self.asked = {}, []
        self.reserved = {9}
        self.hangs = False
        self.link = ipc.Listener(folder / "engine.sock", self._serve)

    def _serve(self, peer, body, fields, seq):
        name, port = ipc.text(fields, 1), fields[2][0]
        self.asked.append((name, port, fields[3][0]))
        if self.hangs:
            return
        if port in self.reserved:
            peer.send(ipc.ERROR, [(1, ipc.PERMISSION_DENIED), (3, "reserved")], seq)
            return
        sandbox = self.sandboxes.get(name)
        if sandbox is None:
            peer.send(ipc.ERROR, [(1, ipc.NOT_FOUND), (3, "no sandbox")], seq)
            return
        made = sandbox.sockets(fields[3][0])
        peer.send(ipc.SOCKET_REPLY, [(1, len(made))], seq, [s.fileno() for s in made])
        for s in made:
            s.close()

    def died(self, sandbox):
        self.sandboxes.pop(sandbox.name, None)
        for peer in self.link.wait_peers():
            peer.send(ipc.DIED, [(1, sandbox.name), (2, "exit"), (3, 0)])


def share_certificates(pairs, secret, fd=None):
    """The memory through which the supervisor hands certificates on, as src/net/tls_share.c lays it out."""
    fd = os.memfd_create("certificates") if fd is None else fd
    texts = [open(file, "rb").read() for pair in pairs for file in pair]
    sizes = [len(text) for text in texts] + [0] * (32 - len(texts))
    os.ftruncate(fd, 1 << 20)
    os.pwrite(fd, struct.pack("II32I", 0, len(pairs), *sizes) + secret + b"".join(texts), 0)
    return fd


class World:
    """A gateway with its fakes; `args` go to the gateway. With `certificates` (pairs of files) it serves TLS on tls_port
    too."""

    def __init__(self, build_dir, folder, *args, port=0, listener=None, certificates=(), secret=b"s" * 32):
        self.folder = folder
        self.control, self.engine = Control(folder), Engine(folder)
        self.control.start()
        self.engine.link.start()
        self.sandboxes = []
        self.listener = listener or socket.create_server(("127.0.0.1", port), backlog=128)
        self.port = self.listener.getsockname()[1]
        self.log = open(folder / "gateway.log", "wb")
        fd, more_fds = self.listener.fileno(), []
        if certificates:
            self.tls_listener = socket.create_server(("127.0.0.1", 0), backlog=128)
            self.tls_port = self.tls_listener.getsockname()[1]
            self.share = share_certificates(certificates, secret)
            more_fds = [self.tls_listener.fileno(), self.share]
            args = (*args, "--tls-listen-fd", str(more_fds[0]), "--tls-fd", str(more_fds[1]))
        self.process = subprocess.Popen(
            [build_dir / "libexec/abx-gateway", "--listen-fd", str(fd), "--control-sock", folder / "control.sock",
             "--table-sock", folder / "table.sock", "--engine-sock", folder / "engine.sock", "--domain", "sbx.test",
             *args],
            pass_fds=[fd, *more_fds], stderr=self.log)
        self.wait_up()

    def wait_up(self):
        self.control.table.wait_peers()
        self.engine.link.wait_peers()

    def sandbox(self, name, told=True, **more):
        sandbox = Sandbox(name, **more)
        self.sandboxes.append(sandbox)
        self.engine.sandboxes[name] = sandbox
        if told:
            self.control.put(sandbox)
        else:
            self.control.hidden[name] = sandbox
        return sandbox

    def kill(self, sandbox):
        """As control and engine do it: the row goes everywhere, then the sandbox."""
        self.control.hidden.pop(sandbox.name, None)
        self.control.remove(sandbox)
        self.engine.sandboxes.pop(sandbox.name, None)

    def connect(self):
        s = socket.create_connection(("127.0.0.1", self.port))
        s.settimeout(BUSY_S)
        return s

    def logged(self):
        return (self.folder / "gateway.log").read_text()

    def close(self):
        self.process.send_signal(signal.SIGTERM)
        try:
            code = self.process.wait(BUSY_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
            raise
        self.control.stop()
        self.engine.link.stop()
        for sandbox in self.sandboxes:
            sandbox.close()
        self.listener.close()
        if hasattr(self, "share"):
            self.tls_listener.close()
            os.close(self.share)
        self.log.close()
        return code


class Response:
    def __init__(self, status, fields, body, raw_head):
        self.status, self.fields, self.body, self.raw_head = status, fields, body, raw_head

    def json(self):
        return json.loads(self.body)

    def __repr__(self):
        return f"<{self.status} {self.fields} {self.body[:200]!r}>"


class Client:
    """One connection to the gateway, HTTP/1.1 by hand."""

    def __init__(self, world):
        self.sock = world.connect()
        self.data = b""

    def send(self, method, path, headers=None, body=b"", host="127.0.0.1"):
        lines = [f"{method} {path} HTTP/1.1", f"Host: {host}"]
        lines += [f"{k}: {v}" for k, v in (headers or {}).items()]
        if body or method in ("POST", "PUT"):
            lines.append(f"Content-Length: {len(body)}")
        self.sock.sendall("\r\n".join(lines).encode() + b"\r\n\r\n" + body)

    def _fill(self):
        got = self.sock.recv(65536)
        if not got:
            raise EOFError(f"closed; had {self.data[:200]!r}")
        self.data += got

    def until(self, mark):
        while mark not in self.data:
            self._fill()
        head, self.data = self.data.split(mark, 1)
        return head

    def take(self, n):
        while len(self.data) < n:
            self._fill()
        out, self.data = self.data[:n], self.data[n:]
        return out

    def head(self):
        lines = self.until(b"\r\n\r\n").decode("latin-1").split("\r\n")
        fields = {}
        for line in lines[1:]:
            name, value = line.split(": ", 1)
            assert name.lower() not in fields, f"{name} twice"
            fields[name.lower()] = value
        return Response(int(lines[0].split()[1]), fields, b"", lines)

    def chunk(self):
        n = int(self.until(b"\r\n"), 16)
        data = self.take(n)
        assert self.take(2) == b"\r\n"
        return data

    def response(self, method="GET"):
        r = self.head()
        if method == "HEAD" or r.status in (204, 304):
            return r
        if r.fields.get("transfer-encoding") == "chunked":
            while data := self.chunk():
                r.body += data
        else:
            r.body = self.take(int(r.fields["content-length"]))
        return r

    def request(self, method, path, headers=None, body=b"", host="127.0.0.1"):
        self.send(method, path, headers, body, host)
        return self.response(method)

    def close(self):
        self.sock.close()
