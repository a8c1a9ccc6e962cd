"""A host and an internet of their own: two network namespaces joined by a veth pair. Nothing leaves this machine.

The host has a default route into the internet, which has any address that a test wants. A service that is started
inside the host's namespace knows of no other network.
"""

import contextlib
import ctypes
import os
import socket
import subprocess
import threading
import time

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
        deadline = time.monotonic() + 20
        while os.readlink(path) == own:
            assert time.monotonic() < deadline and self.holder.poll() is None, "no network namespace"
            time.sleep(0.005)
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
            subprocess.run(["ip", *args], check=True, timeout=20)

    def close(self):
        os.close(self.fd)
        self.holder.stdin.close()
        self.holder.wait(20)


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
