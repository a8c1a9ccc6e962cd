"""See bench_gateway.sh. Ratios are ours to nginx's, higher is better: requests a second, and requests for the same CPU. Everything runs on loopback; the figures that count are the proxies' own CPU seconds per
request (from /proc/PID/schedstat), which other load on the machine disturbs least. What nginx does not do: look the
sandbox up, make sockets in a network namespace, give each request an id."""

import contextlib
import os
import re
import resource
import selectors
import shutil
import signal
import socket
import ssl
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests/system"))
import gateway_fakes  # noqa: E402
import http_fakes  # noqa: E402

BUILD = Path(os.environ.get("ABX_BUILD", ROOT / "build"))
BASE = int(os.environ.get("ABX_BENCH_PORT", 19350))
UPSTREAM, PROXY, PROXY_TLS, ECHO = BASE, BASE + 1, BASE + 2, BASE + 3
IDLE = 2000
STREAMS = 200

NGINX = """
worker_processes 1;
pid {dir}/nginx.pid;
error_log {dir}/error.log;
daemon off;
events {{ worker_connections 4096; }}
http {{
    access_log off;
    client_body_temp_path {dir}/body; proxy_temp_path {dir}/proxy; fastcgi_temp_path {dir}/f; uwsgi_temp_path {dir}/u;
    scgi_temp_path {dir}/s;
    keepalive_requests 100000000;
    client_max_body_size 0;
    {what}
}}
"""
ORIGIN = """
    server {{
        listen 127.0.0.1:{port} backlog=1024;
        root {dir}/www;
        location /paced {{ limit_rate 256k; }}
        location /post {{ return 200 "ok"; }}
    }}
"""
REVERSE = """
    upstream up {{ server 127.0.0.1:{upstream}; keepalive 256; keepalive_requests 100000000; }}
    ssl_certificate {certificate}; ssl_certificate_key {key};
    ssl_session_cache off; ssl_protocols TLSv1.2 TLSv1.3;
    server {{
        listen 127.0.0.1:{port} backlog=1024;
        listen 127.0.0.1:{tls_port} ssl backlog=1024;
        location / {{
            proxy_pass http://up;
            proxy_http_version 1.1;
            proxy_set_header Connection "";
            proxy_set_header Host $http_host;
            proxy_set_header X-Forwarded-For $proxy_add_x_forwarded_for;
            proxy_set_header X-Forwarded-Proto $scheme;
            proxy_set_header X-Forwarded-Host $http_host;
            proxy_request_buffering off;
            proxy_buffering {buffering};
            proxy_max_temp_file_size 0;
        }}
    }}
"""


class Plain(gateway_fakes.Sandbox):
    """A sandbox in the host's own network namespace: the upstream is the one that nginx has too."""

    def __init__(self, name):
        self.name, self.state = name, gateway_fakes.RUNNING
        self.access_token = self.traffic_token = self.mask = ""
        self.https, self.key, self.wakes = (), "", False
        self.open = []

    def sockets(self, n):
        return [socket.socket(socket.AF_INET6) for _ in range(n)]

    def close(self):
        pass


def start_nginx(folder, what):
    folder.mkdir()
    (folder / "nginx.conf").write_text(NGINX.format(dir=folder, what=what))
    process = subprocess.Popen(["nginx", "-p", folder, "-c", folder / "nginx.conf"])
    deadline = time.monotonic() + 5
    while True:
        children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
        if children:
            return process, int(children[0])
        if time.monotonic() > deadline or process.poll() is not None:
            raise SystemExit("nginx did not start: " + (folder / "error.log").read_text())
        time.sleep(0.02)


def cpu_ns(pid):
    return int(Path(f"/proc/{pid}/schedstat").read_text().split()[0])


def wrk(port, path, connections, seconds, script):
    """Requests answered, and the seconds that they took."""
    args = ["wrk", "-t1", f"-c{connections}", f"-d{seconds}s", "--timeout", "30s", "-s", script,
            f"http://127.0.0.1:{port}{path}"]
    out = subprocess.run(args, stdout=subprocess.PIPE, text=True, check=True).stdout
    errors = re.search(r"Non-2xx or 3xx responses: (\d+)|Socket errors: (.*)", out)
    if errors:
        raise SystemExit(f"wrk saw errors:\n{out}")
    return int(re.search(r"(\d+) requests in", out)[1]), seconds


def handshakes(port, seconds, certificates):
    """Whole TLS 1.3 handshakes, none resumed, by four clients at once; each fetches nothing."""
    args = ["openssl", "s_time", "-connect", f"127.0.0.1:{port}", "-new", "-tls1_3", "-time", str(seconds), "-CAfile",
            certificates / "ca.pem"]
    clients = [subprocess.Popen(args, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) for _ in range(4)]
    outs = [c.communicate()[0] for c in clients]
    return sum(int(re.search(r"(\d+) connections in \d+ real", out)[1]) for out in outs)


class Echo(threading.Thread):
    """The servers behind idle connections: switch protocols, then hold still."""

    def __init__(self):
        super().__init__(daemon=True)
        self.listener = socket.create_server(("127.0.0.1", ECHO), backlog=1024)
        self.held = []
        self.start()

    def run(self):
        while True:
            conn, _ = self.listener.accept()
            conn.recv(4096)
            conn.sendall(b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: Upgrade\r\n\r\n")
            self.held.append(conn)


def idle(world, what, connect, request, until):
    """Bytes of the gateway's resident memory for each of IDLE connections on which nothing happens any more."""
    before = gateway_rss(world)
    clients = []
    for _ in range(IDLE):
        c = connect()
        c.sendall(request)
        while until not in c.recv(4096):
            pass
        clients.append(c)
    grown = (gateway_rss(world) - before) * 1024 / IDLE
    print(f"{f'{IDLE} idle: {what}':44} {grown:8.0f} bytes each (target < 16384)", flush=True)
    for c in clients:
        c.close()


def request_for(port, more=""):
    return f"GET /small HTTP/1.1\r\nHost: h\r\nE2b-Sandbox-Id: ibench\r\nE2b-Sandbox-Port: {port}\r\n{more}\r\n".encode()


def idle_all(start_world, certificates):
    """Each with a gateway of its own, whose memory is fresh."""
    tls = ssl.create_default_context(cafile=certificates / "ca.pem")
    echo = Echo()
    upgrade = request_for(ECHO, "Upgrade: x\r\nConnection: Upgrade\r\n")
    for what, request, until in (("keep-alive clients", request_for(UPSTREAM), b"hello world"),
                                 ("relayed upgrades, two sockets each", upgrade, b"\r\n\r\n")):
        for is_secure in (False, True):
            with start_world() as world:
                port = world.tls_port if is_secure else world.port

                def connect():
                    c = socket.create_connection(("127.0.0.1", port))
                    return tls.wrap_socket(c, server_hostname="127.0.0.1") if is_secure else c

                idle(world, what + (", TLS" if is_secure else ""), connect, request, until)
            for conn in echo.held:
                conn.close()
            echo.held.clear()


def streams(port, seconds, headers):
    """STREAMS bodies at once on as many connections, each sent at one pace, read as fast as they come: bytes of each, and the median and the
    longest time of a small request meanwhile."""
    request = f"GET /paced HTTP/1.1\r\nHost: h\r\n{headers}\r\n".encode()
    small = f"GET /small HTTP/1.1\r\nHost: h\r\n{headers}\r\n".encode()
    poll = selectors.DefaultSelector()
    got = {}
    for _ in range(STREAMS):
        c = socket.create_connection(("127.0.0.1", port))
        c.sendall(request)
        c.setblocking(False)
        poll.register(c, selectors.EVENT_READ)
        got[c] = 0
    other = socket.create_connection(("127.0.0.1", port))
    other.setblocking(False)
    poll.register(other, selectors.EVENT_READ)
    times, sent = [], time.monotonic()
    other.sendall(small)
    end = sent + seconds
    while time.monotonic() < end:
        for key, _ in poll.select(1):
            n = len(key.fileobj.recv(1 << 18))
            if key.fileobj is not other:
                got[key.fileobj] += n
                continue
            times.append(time.monotonic() - sent)
            sent = time.monotonic()
            other.sendall(small)
    times.append(time.monotonic() - sent)  # the one that is under way
    for c in (*got, other):
        c.close()
    return sorted(got.values()), sorted(times)


def both(rounds, of, measure):
    """{name: (done a second, CPU us each)} of rounds in which both take turns: the fastest round, which others on the machine
    disturbed least, and the median of the CPU time. `of` is {name: (port, pid)}."""
    seen = {name: [] for name in of}
    for i in range(rounds + 1):
        for name, (port, pid) in of.items():
            before = cpu_ns(pid)
            n, seconds = measure(port)
            if i > 0:  # the first one warms up
                seen[name].append((n / seconds, (cpu_ns(pid) - before) / 1e3 / n))
    return {name: (max(r for r, _ in all_), statistics.median(c for _, c in all_)) for name, all_ in seen.items()}


def row(case, got):
    (r0, c0), (r1, c1) = got["nginx"], got["gateway"]
    print(f"{case:26} {r0:8.0f} {r1:8.0f} {r1 / r0:6.2f} {c0:10.1f} {c1:10.1f} {c0 / c1:6.2f}   >= 0.8", flush=True)


def relays(of, scripts, rounds):
    for case, path, script, connections in (("GET 12 B, 64 conns", "/small", "get", 64),
                                            ("GET 12 B, 1000 conns", "/small", "get", 1000),
                                            ("POST 4 KiB, 64 conns", "/post", "post4k", 64),
                                            ("GET 64 KiB, 64 conns", "/big", "get", 64),
                                            ("GET 4 MiB, 8 conns", "/huge", "get", 8)):
        row(case, both(rounds, of, lambda port: wrk(port, path, connections, 2, scripts[script])))


def run(world, worker, scripts, rounds, certificates):
    print(f"{'':26} {'requests a second':^24} {'CPU us each':^28} target")
    print(f"{'case':26} {'nginx':>8} {'ours':>8} {'ratio':>6} {'nginx':>10} {'ours':>10} {'ratio':>6}", flush=True)
    relays({"nginx": (PROXY, worker), "gateway": (world.port, world.process.pid)}, scripts, rounds)
    row("TLS handshakes, 4 clients", both(rounds, {"nginx": (PROXY_TLS, worker), "gateway": (world.tls_port, world.process.pid)},
                                          lambda port: (handshakes(port, 2, certificates), 2)))
    sandbox = f"E2b-Sandbox-Id: ibench\r\nE2b-Sandbox-Port: {UPSTREAM}\r\n"
    for name, port in (("nginx", PROXY), ("ours", world.port)):
        got, times = streams(port, 10, sandbox)
        print(f"{STREAMS} bodies of 256 KiB/s each for 10 s, {name}: {sum(got) / 10 / 2**20:.0f} MiB/s; one of them got {got[0] / 2**20:.1f} MiB at "
              f"least, {got[-1] / 2**20:.1f} at most; {len(times)} small requests beside them: median "
              f"{statistics.median(times) * 1e3:.0f} ms, longest {times[-1] * 1e3:.0f} ms", flush=True)


def main():
    rounds = int(sys.argv[1])
    folder = Path(tempfile.mkdtemp(prefix="abx-bench-"))
    folder.chmod(0o755)
    certificates = http_fakes.make_certificates(folder / "tls", "127.0.0.1")
    pair = certificates / "127.0.0.1.pem", certificates / "127.0.0.1.key"
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(16384, resource.getrlimit(resource.RLIMIT_NOFILE)[1]),) * 2)
    scripts = {}
    for name, body in (("get", ""), ("post4k", 'wrk.method = "POST"; wrk.body = string.rep("x", 4096)')):
        scripts[name] = folder / f"{name}.lua"
        scripts[name].write_text(f'{body}\nwrk.headers["E2b-Sandbox-Id"] = "ibench"\n'
                                 f'wrk.headers["E2b-Sandbox-Port"] = "{UPSTREAM}"\n')
    stop = []

    @contextlib.contextmanager
    def start_world():
        made = Path(tempfile.mkdtemp(prefix="gw-", dir=folder))
        made.chmod(0o755)
        world = gateway_fakes.World(BUILD, made, certificates=[pair])
        try:
            world.engine.sandboxes["ibench"] = plain = Plain("ibench")
            world.control.put(plain)
            yield world
        finally:
            world.close()

    try:
        origin, _ = start_nginx(folder / "origin", ORIGIN.format(port=UPSTREAM, dir=folder / "origin"))
        stop.append(origin)
        (folder / "origin/www").mkdir()
        (folder / "origin/www/small").write_text("hello world\n")
        (folder / "origin/www/big").write_bytes(b"x" * (64 << 10))
        (folder / "origin/www/huge").write_bytes(b"x" * (4 << 20))
        with open(folder / "origin/www/paced", "wb") as f:
            f.truncate(64 << 30)
        reverse, worker = start_nginx(folder / "reverse", REVERSE.format(
            port=PROXY, tls_port=PROXY_TLS, upstream=UPSTREAM, buffering="on", certificate=pair[0], key=pair[1]))
        stop.append(reverse)
        with start_world() as world:
            run(world, worker, scripts, rounds, certificates)
        idle_all(start_world, certificates)
    finally:
        for process in stop:
            process.send_signal(signal.SIGTERM)
            process.wait()
        shutil.rmtree(folder)


def gateway_rss(world):
    return int(re.search(r"VmRSS:\s+(\d+)", Path(f"/proc/{world.process.pid}/status").read_text())[1])


main()
