"""See bench_gateway.sh. Everything runs on loopback; the figures that count are the proxies' own CPU seconds per
request (from /proc/PID/schedstat), which other load on the machine disturbs least. What nginx does not do: look the
sandbox up, make sockets in a network namespace, give each request an id."""

import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests/system"))
import gateway_fakes  # noqa: E402

BUILD = Path(os.environ.get("ABX_BUILD", ROOT / "build"))
BASE = int(os.environ.get("ABX_BENCH_PORT", 19350))
UPSTREAM, PROXY = BASE, BASE + 1

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
        location /post {{ return 200 "ok"; }}
    }}
"""
REVERSE = """
    upstream up {{ server 127.0.0.1:{upstream}; keepalive 256; keepalive_requests 100000000; }}
    server {{
        listen 127.0.0.1:{port} backlog=1024;
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
        }}
    }}
"""


class Plain(gateway_fakes.Sandbox):
    """A sandbox in the host's own network namespace: the upstream is the one that nginx has too."""

    def __init__(self, name):
        self.name, self.state = name, gateway_fakes.RUNNING
        self.access_token = self.traffic_token = self.mask = ""
        self.https, self.key = (), ""
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
    args = ["wrk", "-t1", f"-c{connections}", f"-d{seconds}s", "--latency", "--timeout", "30s", "-s", script,
            f"http://127.0.0.1:{port}{path}"]
    out = subprocess.run(args, stdout=subprocess.PIPE, text=True, check=True).stdout
    errors = re.search(r"Non-2xx or 3xx responses: (\d+)|Socket errors: (.*)", out)
    if errors:
        raise SystemExit(f"wrk saw errors:\n{out}")
    return int(re.search(r"(\d+) requests in", out)[1]), re.search(r"50%\s+(\S+)", out)[1], \
        re.search(r"99%\s+(\S+)", out)[1]


def main():
    seconds = int(sys.argv[1])
    folder = Path(tempfile.mkdtemp(prefix="abx-bench-"))
    folder.chmod(0o755)
    (folder / "gw").mkdir()
    scripts = {}
    for name, body in (("get", ""), ("post4k", 'wrk.method = "POST"; wrk.body = string.rep("x", 4096)')):
        scripts[name] = folder / f"{name}.lua"
        scripts[name].write_text(f'{body}\nwrk.headers["E2b-Sandbox-Id"] = "ibench"\n'
                                 f'wrk.headers["E2b-Sandbox-Port"] = "{UPSTREAM}"\n')
    stop = []
    try:
        origin, _ = start_nginx(folder / "origin", ORIGIN.format(port=UPSTREAM, dir=folder / "origin"))
        stop.append(origin)
        (folder / "origin/www").mkdir()
        (folder / "origin/www/small").write_text("hello world\n")
        (folder / "origin/www/big").write_bytes(b"x" * (64 << 10))
        (folder / "origin/www/huge").write_bytes(b"x" * (4 << 20))
        reverse, worker = start_nginx(folder / "reverse", REVERSE.format(port=PROXY, upstream=UPSTREAM,
                                                                         buffering="on"))
        stop.append(reverse)
        world = gateway_fakes.World(BUILD, folder / "gw")
        world.engine.sandboxes["ibench"] = plain = Plain("ibench")
        world.control.put(plain)
        before = gateway_rss(world)
        clients = [world.connect() for _ in range(2000)]
        request = b"GET /small HTTP/1.1\r\nHost: h\r\nE2b-Sandbox-Id: ibench\r\nE2b-Sandbox-Port: %d\r\n\r\n" % UPSTREAM
        for c in clients:
            c.sendall(request)
            c.recv(4096)
        print(f"2000 idle keep-alive clients: {(gateway_rss(world) - before) * 1024 / 2000:.0f} bytes each, "
              f"{gateway_rss(world)} KiB in all")
        for c in clients:
            c.close()
        print(f"{'case':26} {'proxy':8} {'req/s':>8} {'CPU us/req':>11} {'p50':>9} {'p99':>9}")
        for case, path, script, connections in (("GET 12 B, 64 conns", "/small", "get", 64),
                                                ("GET 12 B, 1000 conns", "/small", "get", 1000),
                                                ("POST 4 KiB, 64 conns", "/post", "post4k", 64),
                                                ("GET 64 KiB, 64 conns", "/big", "get", 64),
                                                ("GET 4 MiB, 8 conns", "/huge", "get", 8)):
            for name, port, pid in (("nginx", PROXY, worker), ("gateway", world.port, world.process.pid)):
                wrk(port, path, connections, 1, scripts[script])
                before = cpu_ns(pid)
                n, p50, p99 = wrk(port, path, connections, seconds, scripts[script])
                used = (cpu_ns(pid) - before) / 1e3
                print(f"{case:26} {name:8} {n / seconds:8.0f} {used / n:11.1f} {p50:>9} {p99:>9}", flush=True)
        world.close()
    finally:
        for process in stop:
            process.send_signal(signal.SIGTERM)
            process.wait()
        shutil.rmtree(folder)


def gateway_rss(world):
    return int(re.search(r"VmRSS:\s+(\d+)", Path(f"/proc/{world.process.pid}/status").read_text())[1])


main()
