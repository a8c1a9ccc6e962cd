#!/usr/bin/env python3
"""Measures the data plane of one sandbox of a service built in this tree: keystrokes and a command's output.

usage: bench_data.py [--quick]

Prints one table like bench.py, whose client it uses. Echo: one byte goes to `cat` on a raw terminal inside, and the time ends
when it has come back; 20 ms of quiet lie between two. Output: 100 MB of `head -c` through daemon and gateway into a client that
only counts, beside the same program's pipe into a reader of 32 KiB at a time in the same sandbox, in turns. The best of the
rounds stand beside the medians: other work on the machine only ever adds. Needs root and the base template.
"""

import argparse
import base64
import json
import os
import socket
import struct
import sys
import time
from pathlib import Path

from bench import ROOT, Client, median, ms, put, quantile, row, table, timed
from service import Service

SIZE = 100_000_000
PIPE = """#include <stdio.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
int main(void) { static char buf[32768]; struct timespec a, b; int p[2]; ssize_t n; long long sum = 0;
 clock_gettime(CLOCK_MONOTONIC, &a);
 if (pipe(p) < 0) return 1;
 if (fork() == 0) { dup2(p[1], 1); close(p[0]); close(p[1]); execlp("head", "head", "-c", "100000000", "/dev/zero", NULL); _exit(1); }
 close(p[1]);
 while ((n = read(p[0], buf, sizeof buf)) > 0) sum += n;
 wait(NULL);
 clock_gettime(CLOCK_MONOTONIC, &b);
 if (sum != 100000000) return 1;
 printf("%f", (b.tv_sec - a.tv_sec) + (b.tv_nsec - a.tv_nsec) / 1e9); return 0; }"""


def start_stream(client, box, message, kind="json"):
    data = json.dumps(message).encode() if kind == "json" else message
    data = struct.pack(">BI", 0, len(data)) + data
    headers = [*Client.box_headers(box), f"Content-Type: application/connect+{kind}", "Connect-Protocol-Version: 1"]
    client.sock.sendall(client.head("POST", "/process.Process/Start", headers, len(data)) + data)
    status, _, chunked = client.read_head()
    assert status == 200 and chunked


def read_event(client, stream):
    """The next message of a chunked stream; `stream` holds what is not taken yet."""
    while True:
        if len(stream) >= 5 and len(stream) >= 5 + int.from_bytes(stream[1:5], "big"):
            n = int.from_bytes(stream[1:5], "big")
            event = json.loads(stream[5 : 5 + n])
            del stream[: 5 + n]
            return event.get("event", {})
        while b"\r\n" not in client.buf:
            client.read_more()
        size, client.buf = client.buf.split(b"\r\n", 1)
        while len(client.buf) < int(size, 16) + 2:
            client.read_more()
        stream += client.buf[: int(size, 16)]
        client.buf = client.buf[int(size, 16) + 2 :]


def echo_rpc(service, rounds):
    """SendInput on one connection, the output stream on another: what the SDKs do."""
    control, output = Client(service.port, service.key), Client(service.port, service.key)
    box = control.create()
    stream = bytearray()
    start_stream(output, box, {"process": {"cmd": "/bin/sh", "args": ["-c", "stty raw -echo; echo go; exec cat"]},
                               "pty": {"size": {"cols": 80, "rows": 24}}})
    pid = read_event(output, stream)["start"]["pid"]
    while b"go" not in base64.b64decode(read_event(output, stream).get("data", {}).get("pty", "")):
        pass
    times = []
    for i in range(rounds):
        time.sleep(0.02)
        key = bytes([97 + i % 26])
        body = {"process": {"pid": pid}, "input": {"pty": base64.b64encode(key).decode()}}
        start = time.perf_counter()
        control.sock.sendall(request_of(control, box, body))
        while (data := read_event(output, stream).get("data", {}).get("pty")) is None:
            pass
        times.append(time.perf_counter() - start)
        assert base64.b64decode(data) == key
        status, length, chunked = control.read_head()
        assert status == 200, control.read_body(length, chunked)
        control.read_body(length, chunked)
    control.kill(box)
    return times


def request_of(client, box, body):
    data = json.dumps(body).encode()
    return client.head("POST", "/process.Process/SendInput", [*Client.box_headers(box), "Content-Type: application/json"], len(data)) + data


def frame(data, opcode=2):
    assert len(data) < 126
    return bytes([128 | opcode, 128 | len(data)]) + bytes(4) + data


def echo_websocket(service, rounds):
    control = Client(service.port, service.key)
    box = control.create()
    sock = socket.create_connection(("127.0.0.1", service.port), 30)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    fields = [*Client.box_headers(box), "Connection: Upgrade", "Upgrade: websocket", "Sec-WebSocket-Version: 13",
              "Sec-WebSocket-Key: " + base64.b64encode(bytes(16)).decode()]
    sock.sendall(("GET /terminal HTTP/1.1\r\nHost: x\r\n" + "\r\n".join(fields) + "\r\n\r\n").encode())
    sock.sendall(frame(b"stty raw -echo; echo g''o; exec cat\n"))
    seen = b""
    while b"go\n" not in seen:
        seen += sock.recv(65536)
    times = []
    for i in range(rounds):
        time.sleep(0.02)
        key = bytes([97 + i % 26])
        start = time.perf_counter()
        sock.sendall(frame(key))
        got = sock.recv(65536)
        times.append(time.perf_counter() - start)
        assert got == b"\x82\x01" + key, got
    sock.close()
    control.kill(box)
    return times


def count_to_end(client):
    """Bytes of the body until the last chunk; what comes is not looked at."""
    total, tail, sink = len(client.buf), client.buf[-7:], bytearray(1 << 20)
    while not tail.endswith(b"\r\n0\r\n\r\n"):
        n = client.sock.recv_into(sink)
        assert n > 0
        total, tail = total + n, (tail + sink[max(0, n - 7) : n])[-7:]
    client.buf = b""
    return total


def proto(number, data):
    return bytes([number << 3 | 2, len(data)]) + data


def bench_output(service, rounds):
    client = Client(service.port, service.key)
    box = client.create()
    put(client, box, "/tmp/pipe.c", PIPE.encode())
    code, out = client.run(box, "/bin/bash", ["-c", "gcc -O2 -o /tmp/pipe /tmp/pipe.c 2>&1"])
    assert code == 0, out
    args = ["-c", str(SIZE), "/dev/zero"]
    messages = {
        "json": {"process": {"cmd": "head", "args": args}, "stdin": False},
        "proto": proto(1, proto(1, b"head") + b"".join(proto(2, a.encode()) for a in args)),
    }
    times = {"json": [], "proto": [], "pipe": []}

    def stream(kind):
        start_stream(client, box, messages[kind], kind)
        return count_to_end(client)

    for _ in range(rounds):
        for kind in messages:
            seconds, n = timed(stream, kind)
            assert n > (SIZE if kind == "proto" else SIZE * 4 // 3)
            times[kind].append(seconds)
        code, out = client.run(box, "/tmp/pipe", [])
        assert code == 0
        times["pipe"].append(float(out))
    client.kill(box)
    rate = lambda seconds: f"{SIZE / seconds / 1e6:.0f} MB/s"
    for kind in messages:
        row(f"100 MB of stdout, {kind}", rate(median(times[kind])), f"pipe {rate(median(times['pipe']))}", ">= 1/3 of the pipe",
            f"{median(times['pipe']) / median(times[kind]):.2f}, best {min(times['pipe']) / min(times[kind]):.2f}")


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--quick", action="store_true", help="fewer rounds")
    args = parser.parse_args()
    build = Path(os.environ.get("ABX_BUILD", ROOT / "build"))
    with Service(build) as service:
        for name, fn in (("SendInput and stream", echo_rpc), ("/terminal", echo_websocket)):
            times = fn(service, 100 if args.quick else 500)
            row(f"keystroke echo by {name}", ms(median(times)), f"p95 {ms(quantile(times, 0.95))}", "median < 1 ms when quiet", f"best {ms(min(times))}")
        bench_output(service, 3 if args.quick else 9)
    table()


if __name__ == "__main__":
    main()
