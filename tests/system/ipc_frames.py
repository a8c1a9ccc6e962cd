"""Frames of schema/ipc.proto for fakes of host processes: just enough protobuf, no library.

A message is a list of (field number, value): int, bool, str, bytes or such a list. Decoding gives a dict of field
number -> list of raw values (int or bytes).
"""

import array
import socket
import threading

from waiting import BUSY_S

HELLO, HELLO_REPLY, ERROR = 11, 12, 10
DIED, SOCKET, SOCKET_REPLY = 40, 50, 51
ENTRY, REMOVE, REMOVE_DONE, TABLE_SYNCED, LOOKUP, LOOKUP_REPLY, WAKE, WAKE_REPLY = 60, 61, 62, 63, 64, 65, 69, 72
HEALTH, HEALTH_REPLY = 76, 77
BODIES = {HELLO, HELLO_REPLY, ERROR, DIED, SOCKET, SOCKET_REPLY, ENTRY, REMOVE, REMOVE_DONE, TABLE_SYNCED, LOOKUP,
          LOOKUP_REPLY, WAKE, WAKE_REPLY, HEALTH, HEALTH_REPLY}

DEADLINE_EXCEEDED, NOT_FOUND, FAILED_PRECONDITION, PERMISSION_DENIED, UNAVAILABLE = 4, 5, 9, 7, 14
BUSY = 8  # a reason


def varint(n):
    out = bytearray()
    while True:
        out.append((n & 0x7F) | (0x80 if n > 0x7F else 0))
        n >>= 7
        if n == 0:
            return bytes(out)


def encode(message):
    out = b""
    for number, value in message:
        if isinstance(value, int):
            out += varint(number << 3) + varint(int(value))
            continue
        if isinstance(value, str):
            value = value.encode()
        elif isinstance(value, list):
            value = encode(value)
        out += varint(number << 3 | 2) + varint(len(value)) + value
    return out


def decode(data):
    fields, i = {}, 0

    def take():
        nonlocal i
        n = shift = 0
        while True:
            byte = data[i]
            i += 1
            n |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                return n

    while i < len(data):
        key = take()
        if key & 7 == 0:
            fields.setdefault(key >> 3, []).append(take())
        else:
            assert key & 7 == 2, f"wire type {key & 7}"
            n = take()
            fields.setdefault(key >> 3, []).append(data[i : i + n])
            i += n
    return fields


def text(fields, number):
    return fields.get(number, [b""])[0].decode()


class Peer:
    """One accepted connection."""

    def __init__(self, sock):
        self.sock = sock
        self.lock = threading.Lock()

    def send(self, body, message, seq=0, fds=()):
        data = encode([(1, 1)] + ([(2, seq)] if seq else []) + [(body, message)])
        rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", fds))] if fds else []
        with self.lock:
            self.sock.sendmsg([data], rights)

    def receive(self):
        """(body number, fields of the body, seq), or None at the end."""
        try:
            data = self.sock.recv(65536)
        except OSError:
            return None
        if not data:
            return None
        frame = decode(data)
        body = next(number for number in frame if number in BODIES)
        return body, decode(frame[body][0]), frame.get(2, [0])[0]


class Listener:
    """A SEQPACKET socket at `path`; `serve(peer, body, fields, seq)` gets what comes, hello apart."""

    def __init__(self, path, serve, on_up=None):
        self.path, self.serve, self.on_up = path, serve, on_up
        self.peers, self.sock = [], None
        self.changed = threading.Condition()

    def start(self):
        self.path.unlink(missing_ok=True)
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.sock.bind(str(self.path))
        self.path.chmod(0o777)
        self.sock.listen(16)
        threading.Thread(target=self._accept, args=(self.sock,), daemon=True).start()

    def stop(self):
        if self.sock is None:
            return
        self.sock.shutdown(socket.SHUT_RDWR)
        self.sock.close()
        self.sock = None
        self.path.unlink(missing_ok=True)
        with self.changed:
            peers, self.peers = self.peers, []
        for peer in peers:
            try:
                peer.sock.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass  # its own thread saw the end first

    def wait_peers(self, n=1, timeout=BUSY_S):
        with self.changed:
            assert self.changed.wait_for(lambda: len(self.peers) >= n, timeout), "nobody connected"
            return list(self.peers)

    def _accept(self, sock):
        while True:
            try:
                conn, _ = sock.accept()
            except OSError:
                return
            threading.Thread(target=self._run, args=(Peer(conn),), daemon=True).start()

    def _run(self, peer):
        while (got := peer.receive()) is not None:
            body, fields, seq = got
            if body == HELLO:
                peer.send(HELLO_REPLY, [(1, "fake"), (2, "instance"), (3, "boot")], seq)
                if self.on_up:
                    self.on_up(peer)
                with self.changed:
                    self.peers.append(peer)
                    self.changed.notify_all()
            else:
                try:
                    self.serve(peer, body, fields, seq)
                except BrokenPipeError:
                    break
        with self.changed:
            if peer in self.peers:
                self.peers.remove(peer)
                self.changed.notify_all()
        peer.sock.close()
