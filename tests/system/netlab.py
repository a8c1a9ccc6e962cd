"""A host and an internet of their own: two network namespaces joined by a veth pair. Nothing leaves this machine.

The host has a default route into the internet, which has any address that a test wants. A service that is started
inside the host's namespace knows of no other network.
"""

import base64
import contextlib
import ctypes
import os
import socket
import ssl
import struct
import subprocess
import threading

from waiting import BUSY_S, until

CLONE_NEWNET = 0x40000000
HOST, INTERNET = "203.0.113.1", "203.0.113.2"
HOST6, INTERNET6 = "2a0f:5707:ffff::1", "2a0f:5707:ffff::2"

libc = ctypes.CDLL(None, use_errno=True)


def setns(fd):
    if libc.setns(fd, CLONE_NEWNET) != 0:
        raise OSError(ctypes.get_errno(), "setns")


class Namespace:
    """A network namespace, held by a process that waits for the end of its input."""

    def __init__(self):
        self.holder = subprocess.Popen(["unshare", "--net", "cat"], stdin=subprocess.PIPE)
        own, path = os.readlink("/proc/self/ns/net"), f"/proc/{self.holder.pid}/ns/net"
        until(lambda: os.readlink(path) != own or self.holder.poll() is not None, "a network namespace")
        assert self.holder.poll() is None
        self.fd = os.open(path, os.O_RDONLY)

    @contextlib.contextmanager
    def entered(self):
        """The calling thread is inside, and so is what it starts meanwhile."""
        own = os.open("/proc/thread-self/ns/net", os.O_RDONLY)
        setns(self.fd)
        try:
            yield
        finally:
            setns(own)
            os.close(own)

    def ip(self, *args):
        with self.entered():
            subprocess.run(["ip", *args], check=True, timeout=BUSY_S)

    def close(self):
        os.close(self.fd)
        self.holder.stdin.close()
        self.holder.wait(BUSY_S)


class Lab:
    def __init__(self):
        self.host, self.internet = Namespace(), Namespace()
        self.sockets = []
        for space in (self.host, self.internet):
            space.ip("link", "set", "lo", "up")
        self.host.ip(*"link add world type veth peer name machine netns".split(), str(self.internet.holder.pid))
        for space, name, own, own6 in (
            (self.host, "world", HOST, HOST6),
            (self.internet, "machine", INTERNET, INTERNET6),
        ):
            space.ip("address", "add", f"{own}/24", "dev", name)
            space.ip("address", "add", f"{own6}/64", "dev", name, "nodad")
            space.ip("link", "set", name, "up")
        self.host.ip("route", "add", "default", "via", INTERNET)
        self.host.ip("-6", "route", "add", "default", "via", INTERNET6)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for s in self.sockets:
            with contextlib.suppress(OSError):
                s.shutdown(socket.SHUT_RDWR)
            s.close()
        self.host.close()
        self.internet.close()

    def address(self, *addresses):
        """The internet has these from now on."""
        for address in addresses:
            self.internet.ip("address", "add", f"{address}/{128 if ':' in address else 32}", "dev", "lo")

    def socket(self, space, address, port, kind=socket.SOCK_STREAM):
        with space.entered():
            s = socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET, kind)
        self.sockets.append(s)
        s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        s.bind((address, port))
        if kind == socket.SOCK_STREAM:
            s.listen(4096)
        return s

    def serve(self, address, port, handle, space=None):
        """Calls handle(connection) in a thread of its own for each connection; returns the listening socket."""
        s = self.socket(space or self.internet, address, port)

        def one(connection):
            with contextlib.suppress(OSError), connection:
                handle(connection)

        def loop():
            with contextlib.suppress(OSError):
                while True:
                    threading.Thread(target=one, args=(s.accept()[0],), daemon=True).start()

        threading.Thread(target=loop, daemon=True).start()
        return s


A, SOA, AAAA = 1, 6, 28


def name_bytes(name):
    return b"".join(bytes([len(x)]) + x.encode() for x in name.split(".") if x) + b"\0"


def dns_question(name, kind=A, identity=0x1234, edns=False):
    head = struct.pack(">6H", identity, 0x100, 1, 0, 0, int(edns))
    return head + name_bytes(name) + struct.pack(">HH", kind, 1) + (b"\0" + struct.pack(">HHIH", 41, 4096, 0, 0)) * edns


def dns_addresses(message):
    """(rcode, is truncated, addresses) of an answer whose names are compressed or as short as ours."""
    _, flags, n_questions, n, _, _ = struct.unpack(">6H", message[:12])
    at, found = 12, []

    def skip(at):
        while message[at]:
            if message[at] >= 0xC0:
                return at + 2
            at += 1 + message[at]
        return at + 1

    for _ in range(n_questions):
        at = skip(at) + 4
    for _ in range(n):
        at = skip(at)
        kind, _, _, size = struct.unpack(">HHIH", message[at : at + 10])
        data = message[at + 10 : at + 10 + size]
        if kind in (A, AAAA):
            found.append(socket.inet_ntop(socket.AF_INET if kind == A else socket.AF_INET6, data))
        at += 10 + size
    return flags & 15, bool(flags & 0x200), found


class NameServer:
    """Answers over UDP and TCP from `names`: {name: [addresses]}; other names do not exist. `asked` lists (name, type).

    `ttl` of its answers; `silent` names get no answer; an answer of over 20 addresses has to be asked for by TCP, and
    for a `forged` name come only guesses of someone's over UDP.
    """

    def __init__(self, lab, address, names, ttl=60):
        self.names, self.ttl, self.asked, self.silent, self.forged = names, ttl, [], set(), set()
        udp = lab.socket(lab.internet, address, 53, socket.SOCK_DGRAM)
        lab.serve(address, 53, self.stream)

        def loop():
            with contextlib.suppress(OSError):
                while True:
                    message, peer = udp.recvfrom(4096)
                    if not message:
                        return

                    if answer := self.answer(message, True):
                        is_forged = self.asked[-1][0] in self.forged
                        for _ in range(100 if is_forged else 1):
                            udp.sendto(b"\xff\xff" + answer[2:], peer)  # a guess of someone's, to be dropped
                        if not is_forged:
                            udp.sendto(answer, peer)

        threading.Thread(target=loop, daemon=True).start()

    def stream(self, connection):
        f = connection.makefile("rb")
        while len(size := f.read(2)) == 2:
            answer = self.answer(f.read(int.from_bytes(size, "big")), False)
            connection.sendall(len(answer).to_bytes(2, "big") + answer)

    def answer(self, message, is_udp):
        at, labels = 12, []
        while n := message[at]:
            labels.append(message[at + 1 : at + 1 + n].decode())
            at += 1 + n
        kind = struct.unpack(">H", message[at + 1 : at + 3])[0]
        name, question = ".".join(labels).lower(), message[12 : at + 5]
        self.asked.append((name, kind))
        if name in self.silent:
            return None
        found = [x for x in self.names.get(name, []) if (":" in x) == (kind == AAAA)] if kind in (A, AAAA) else []
        if is_udp and len(found) > 20:
            return message[:2] + struct.pack(">5H", 0x8380, 1, 0, 0, 0) + question
        body = b"".join(
            b"\xc0\x0c"
            + struct.pack(">HHIH", kind, 1, self.ttl, 16 if ":" in x else 4)
            + socket.inet_pton(socket.AF_INET6 if ":" in x else socket.AF_INET, x)
            for x in found
        )
        if not found:
            body = (
                b"\xc0\x0c"
                + struct.pack(">HHIH", SOA, 1, 60, 24)
                + b"\xc0\x0c\xc0\x0c"
                + struct.pack(">5I", 1, 1, 1, 1, 60)
            )
        flags = 0x8180 if name in self.names else 0x8183
        return message[:2] + struct.pack(">5H", flags, 1, len(found), not found, 0) + question + body


class Proxy:
    """An HTTP or SOCKS5 proxy in the internet; `asked` lists (user, "HOST:PORT"). `credentials` is "user:password"."""

    def __init__(self, lab, address, port, kind, credentials=None):
        self.lab, self.credentials, self.asked = lab, credentials, []
        lab.serve(address, port, self.http if kind == "http" else self.socks)

    def relay(self, connection, host, port):
        with self.lab.internet.entered():
            server = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET)
        with server:
            server.connect((host, port))
            yield
            back = threading.Thread(target=self.copy, args=(server, connection), daemon=True)
            back.start()
            self.copy(connection, server)
            back.join()

    @staticmethod
    def copy(source, to):
        with contextlib.suppress(OSError):
            while data := source.recv(65536):
                to.sendall(data)
            to.shutdown(socket.SHUT_WR)

    def http(self, connection):
        head = b""
        while b"\r\n\r\n" not in head:
            head += connection.recv(1)
        lines = head.decode().split("\r\n")
        target = lines[0].split(" ")[1]
        given = dict(line.split(": ", 1) for line in lines[1:] if line).get("Proxy-Authorization", "")
        user = base64.b64decode(given.removeprefix("Basic ")).decode()
        self.asked.append((user, target))
        if self.credentials and user != self.credentials:
            connection.sendall(b"HTTP/1.1 407 Proxy Authentication Required\r\nContent-Length: 0\r\n\r\n")
            return
        host, port = target.rsplit(":", 1)
        for _ in self.relay(connection, host.strip("[]"), int(port)):
            connection.sendall(b"HTTP/1.1 200 Connection established\r\nX-Long: " + b"x" * 3000 + b"\r\n\r\n")

    def socks(self, connection):
        f = connection.makefile("rb", 0)
        if len(hello := f.read(2)) < 2:
            return
        methods = f.read(hello[1])
        user = ""
        wanted = 2 if self.credentials else 0
        connection.sendall(bytes([5, wanted if wanted in methods else 255]))
        if wanted not in methods:
            return
        if self.credentials:
            user = f.read(f.read(2)[1]).decode()
            user += ":" + f.read(f.read(1)[0]).decode()
            connection.sendall(bytes([1, user != self.credentials]))
        kind = f.read(4)[3]
        host = socket.inet_ntop(socket.AF_INET if kind == 1 else socket.AF_INET6, f.read(4 if kind == 1 else 16))
        port = int.from_bytes(f.read(2), "big")
        self.asked.append((user, f"{host}:{port}"))
        try:
            for _ in self.relay(connection, host, port):
                connection.sendall(bytes([5, 0, 0, 3, 4]) + b"name" + b"\0\1")
        except ConnectionRefusedError:
            connection.sendall(bytes([5, 5, 0, 1]) + bytes(6))


class TlsFront:
    """Takes TLS in the internet at `address` and `port`, and passes what is inside on to `to`, with its ends."""

    def __init__(self, lab, address, port, context, to):
        self.lab, self.context, self.to, self.names = lab, context, to, []
        context.sni_callback = lambda _, name, __: self.names.append(name)
        lab.serve(address, port, self.handle)

    def handle(self, connection):
        with self.lab.internet.entered():
            plain = socket.create_connection(self.to, BUSY_S)
        inside, outside = ssl.MemoryBIO(), ssl.MemoryBIO()
        tls = self.context.wrap_bio(inside, outside, server_side=True)
        with plain, contextlib.suppress(ssl.SSLError):
            while True:
                with contextlib.suppress(ssl.SSLWantReadError):
                    tls.do_handshake()
                    break
                connection.sendall(outside.read())
                if not (data := connection.recv(65536)):
                    return
                inside.write(data)
            connection.sendall(outside.read())
            lock = threading.Lock()
            back = threading.Thread(target=self.answer, args=(connection, plain, tls, outside, lock), daemon=True)
            back.start()
            self.ask(connection, plain, tls, inside, lock)
            back.join()

    @staticmethod
    def ask(connection, plain, tls, inside, lock):
        """From TLS to the plain side; some may have come with the end of the handshake."""
        with contextlib.suppress(OSError):
            while True:
                pieces, is_over = [], False
                with lock, contextlib.suppress(ssl.SSLWantReadError):
                    try:
                        while piece := tls.read(65536):
                            pieces.append(piece)
                    except ssl.SSLZeroReturnError:
                        pass
                    is_over = True
                plain.sendall(b"".join(pieces))
                if is_over:
                    plain.shutdown(socket.SHUT_WR)
                    return
                data = connection.recv(65536)
                inside.write(data) if data else inside.write_eof()

    @staticmethod
    def answer(connection, plain, tls, outside, lock):
        with contextlib.suppress(OSError):
            while True:
                data = plain.recv(65536)
                with lock:
                    with contextlib.suppress(ssl.SSLWantReadError):
                        tls.write(data) if data else tls.unwrap()
                    records = outside.read()
                connection.sendall(records)
                if not data:
                    connection.shutdown(socket.SHUT_WR)
                    return
