"""Runs inside a sandbox, as its root: takes the place of PID 1 and of the daemon there (x86-64).

PID 1 is made to execute this program by ptrace: it keeps the listening sockets and starts no other daemon; the daemon is
killed. `GET /MODE` on port 3000 says how connections to envd's port are treated from then on; GET / tells how many
there were.
"""

import ctypes
import gzip
import os
import socket
import struct
import sys
import threading
import time

PTRACE_GETREGS, PTRACE_SETREGS, PTRACE_DETACH, PTRACE_SEIZE, PTRACE_INTERRUPT = 12, 13, 17, 0x4206, 0x4207
REGISTERS = (
    "r15 r14 r13 r12 rbp rbx r11 r10 r9 r8 rax rcx rdx rsi rdi orig_rax rip cs eflags rsp ss fs_base gs_base ds es fs gs"
).split()
SYS_execve = 59

libc = ctypes.CDLL(None, use_errno=True)
libc.ptrace.argtypes = [ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p]
libc.ptrace.restype = ctypes.c_long
mode, count = "stall", 0


class Registers(ctypes.Structure):
    _fields_ = [(name, ctypes.c_uint64) for name in REGISTERS]


def ptrace(request, data=None):
    assert libc.ptrace(request, 1, None, data) == 0, (request, ctypes.get_errno())


def become_init(*argv):
    """PID 1, which waits in a system call, makes another one when it goes on: execve of argv."""
    ptrace(PTRACE_SEIZE)
    ptrace(PTRACE_INTERRUPT)
    while ") t " not in open("/proc/1/stat").read():
        time.sleep(0.01)
    regs = Registers()
    ptrace(PTRACE_GETREGS, ctypes.addressof(regs))
    at = (regs.rsp - 16384) & ~15
    strings = [a.encode() + b"\0" for a in argv]
    places = [at + 1024 + sum(map(len, strings[:i])) for i in range(len(strings))]
    with open("/proc/1/mem", "r+b", buffering=0) as memory:
        memory.seek(at)
        memory.write(struct.pack(f"{len(places) + 1}Q", *places, 0))
        memory.seek(at + 1024)
        memory.write(b"".join(strings))
    regs.rax, regs.orig_rax, regs.rip = SYS_execve, 2**64 - 1, regs.rip - 2
    regs.rdi, regs.rsi, regs.rdx = places[0], at, at + 8 * len(places)
    ptrace(PTRACE_SETREGS, ctypes.addressof(regs))
    ptrace(PTRACE_DETACH)


def kill_daemon():
    for name in os.listdir("/proc"):
        if name.isdigit() and open(f"/proc/{name}/cmdline").read() == "abx-guest\0daemon\0":
            os.kill(int(name), 9)


OK = b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\n"
CHUNKED = OK + b"Transfer-Encoding: chunked\r\n\r\n"
BOMB = gzip.compress(bytes(8 << 20), 9, mtime=0)

ONCE = {  # sent whole, then closed
    "garbage": os.urandom(4096).replace(b"\n", b"x") + b"\r\n\r\n",
    "zeros": bytes(4096) + b"\r\n\r\n",
    "no head": b"<html>hello</html>\n",
    "a request": b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
    "HTTP/2": b"\0\0\x12\4\0\0\0\0\0" + bytes(18),
    "other version": b"HTTP/3.7 200 OK\r\nContent-Length: 2\r\n\r\nhi",
    "status 99": b"HTTP/1.1 99 Low\r\nContent-Length: 2\r\n\r\nhi",
    "status 1000": b"HTTP/1.1 1000 High\r\nContent-Length: 2\r\n\r\nhi",
    "half a head": OK + b"Content-Le",
    "two lengths": OK + b"Content-Length: 2\r\nContent-Length: 3\r\n\r\nhi!",
    "length and chunks": OK + b"Content-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhi\r\n0\r\n\r\n",
    "negative length": OK + b"Content-Length: -1\r\n\r\nhi",
    "huge length": OK + b"Content-Length: 99999999999999999999\r\n\r\nhi",
    "odd coding": OK + b"Transfer-Encoding: gzip\r\n\r\nhi",
    "bare newlines": b"HTTP/1.1 200 OK\nContent-Length: 2\n\nhi",
    "space in a name": OK + b"Content Length: 2\r\n\r\nhi",
    "NUL in a value": OK + b"X: a\0b\r\nContent-Length: 2\r\n\r\nhi",
    "folded": OK + b"X: a\r\n b\r\nContent-Length: 2\r\n\r\nhi",
    "unasked upgrade": b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\nraw",
    "1,000 fields": OK + b"".join(b"X-%d: y\r\n" % i for i in range(1000)) + b"\r\n",
    "a long field": OK + b"X: " + b"y" * (1 << 20) + b"\r\n\r\n",
    # The head is good, what follows is not.
    "bad chunk": CHUNKED + b"5\r\nhello\r\nzz\r\n",
    "endless chunk size": CHUNKED + b"0" * 100000 + b"5\r\nhello\r\n0\r\n\r\n",
    "overflowing chunk": CHUNKED + b"ffffffffffffffffff\r\nhello\r\n",
    "chunk without end": CHUNKED + b"5\r\nhelloXX0\r\n\r\n",
    "body too short": OK + b"Content-Length: 100\r\n\r\nhello",
    "cut in a chunk": CHUNKED + b"5\r\nhel",
    "bad trailers": CHUNKED + b"0\r\n" + b"T: x\r\n" * 5000 + b"\r\n",
    # Whole answers.
    "bomb": OK + b"Content-Encoding: gzip\r\nContent-Length: %d\r\n\r\n" % len(BOMB) + BOMB,
    "more than said": OK + b"Content-Length: 5\r\n\r\nhelloHTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\npoison",
    "body of a 204": b"HTTP/1.1 204 No Content\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\npoison",
    "last poison": OK + b"Content-Length: 5\r\n\r\nhello",
    "nothing": b"",
}
FLOODS = {  # sent for ever: (first, again and again)
    "fields without end": (OK, b"".join(b"X-%d: yyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyy\r\n" % i for i in range(1000))),
    "a line without end": (b"HTTP/1.1 200 ", b"O" * 65536),
    "informational": (b"", b"HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n" * 1000),
    "continue": (b"", b"HTTP/1.1 100 Continue\r\n\r\n" * 1000),
    "empty lines": (b"", b"\r\n" * 32768),
    "body without end": (CHUNKED, b"10000\r\n" + bytes(65536) + b"\r\n"),
    "tiny chunks": (CHUNKED, b"1\r\nx\r\n" * 10000),
    "trailers without end": (CHUNKED + b"0\r\n", b"X: yyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyy\r\n" * 1000),
    "chunk extension without end": (CHUNKED + b"5;", b"e" * 65536),
}


def reset(conn):
    conn.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    conn.close()


def serve(conn):
    now = mode
    if now == "close at accept":
        conn.close()
    elif now == "reset at accept":
        reset(conn)
    elif now == "answer before the request":
        conn.sendall(OK + b"Content-Length: 6\r\n\r\npoison")
        conn.recv(1)
        time.sleep(0.2)
        conn.close()
    elif now == "stall at accept":
        time.sleep(3600)
    else:
        head = b""
        while b"\r\n\r\n" not in head:
            part = conn.recv(65536)
            if not part:
                return
            head += part
        answer(conn, now)


def answer(conn, now):
    if now in ONCE:
        conn.sendall(ONCE[now])
        if now in ("more than said", "body of a 204"):
            time.sleep(1)
        conn.shutdown(socket.SHUT_WR)
        conn.settimeout(1)
        while conn.recv(65536):
            pass
    elif now in FLOODS:
        first, again = FLOODS[now]
        conn.sendall(first)
        while True:
            conn.sendall(again)
    elif now == "upgrade and flood":
        conn.sendall(b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: upgrade\r\n\r\n")
        while True:
            conn.sendall(bytes(65536))
    elif now == "one byte a second":
        for byte in OK + b"Content-Length: 5\r\n\r\nhello":
            conn.sendall(bytes([byte]))
            time.sleep(1)
    elif now == "reset after the request":
        reset(conn)
    elif now == "reset in the head":
        conn.sendall(OK)
        reset(conn)
    elif now == "reset in the body":
        conn.sendall(OK + b"Content-Length: 100\r\n\r\nhello")
        time.sleep(0.1)
        reset(conn)
    elif now == "stall in the head":
        conn.sendall(OK)
        time.sleep(3600)
    elif now == "stall in the body":
        conn.sendall(CHUNKED + b"5\r\nhello\r\n")
        time.sleep(3600)
    elif now == "poison later":
        conn.sendall(OK + b"Content-Length: 5\r\n\r\nhello")
        time.sleep(0.2)
        conn.sendall(OK + b"Content-Length: 6\r\n\r\npoison")
        time.sleep(3600)
    else:  # stall
        time.sleep(3600)


def quietly(fn, conn):
    try:
        fn(conn)
    except OSError:
        pass
    finally:
        conn.close()


def accept_all(listener):
    global count
    while True:
        while mode == "accept nothing":
            time.sleep(0.05)
        conn, _ = listener.accept()
        count += 1
        threading.Thread(target=quietly, args=(serve, conn), daemon=True).start()


def choose(conn):
    global mode
    path = conn.recv(65536).split()[1].decode()[1:].replace("%20", " ").replace("%2C", ",")
    if path:
        mode = path
    body = b"%s %d" % (mode.encode(), count)
    conn.sendall(OK + b"Connection: close\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body))


def packets(sock):
    """Garbage with descriptors of every kind to whoever reads the other end."""
    fds = [os.open("/dev/null", os.O_RDWR), *os.pipe(), os.open("/tmp", os.O_PATH), socket.socket().fileno()]
    sock.setblocking(False)
    for size in (0, 1, 4, 8, 100, 400, 70000):
        for head in (0, 1, 2, 3, 4, 5, 6, 7, 8, 0xFFFFFFFF):
            data = struct.pack("<I", head) + os.urandom(size)
            for n in (0, 1, len(fds), 200):
                try:
                    socket.send_fds(sock, [data[:size]], (fds * 100)[:n])
                except OSError:
                    pass


if __name__ == "__main__":
    if os.getpid() != 1:
        become_init("/usr/bin/python3", os.path.abspath(sys.argv[0]), *sys.argv[1:])
        sys.exit(0)
    kill_daemon()
    # The descriptors that PID 1 was given: guest_abi.h.
    envd, control, init_end, daemon_end = (socket.socket(fileno=fd) for fd in (3, 4, 5, 6))
    if sys.argv[1:] == ["packets"]:
        packets(init_end)
        packets(daemon_end)
        os.execve(7, ["abx-guest", "init"], os.environ)  # it and its next daemon find them
    envd.setblocking(True)
    chooser = socket.create_server(("127.0.0.1", 3000))
    threading.Thread(target=accept_all, args=(envd,), daemon=True).start()
    while True:
        quietly(choose, chooser.accept()[0])
