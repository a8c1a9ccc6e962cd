"""What our Python package sends and understands, against small servers: code, volumes, templates, uploads."""

import json
import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from test_python_program import clean_env


class Recorder(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def answer(self):
        if "chunked" in self.headers.get("Transfer-Encoding", ""):
            body = b""
            while size := int(self.rfile.readline(), 16):
                body += self.rfile.read(size)
                self.rfile.readline()
            self.rfile.readline()
        else:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        self.server.seen.append((self.command, self.path, dict(self.headers), body))
        status, answer = self.server.answer(self.command, self.path, body)
        data = answer if isinstance(answer, bytes) else json.dumps(answer).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    do_GET = do_POST = do_DELETE = do_PUT = do_PATCH = answer


@pytest.fixture
def server():
    server = ThreadingHTTPServer(("127.0.0.1", 0), Recorder)
    server.seen = []
    server.answer = lambda method, path, body: (404, {"code": 404, "message": "nothing here"})
    server.origin = f"http://127.0.0.1:{server.server_port}"
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield server
    server.shutdown()
    server.server_close()


@pytest.fixture
def program(server, python_dir, tmp_path):
    def run(text, **names):
        file = tmp_path / "program.py"
        file.write_text(text)
        env = clean_env(
            tmp_path, python_dir, ABX_SANDBOX_API_KEY="k", ABX_SANDBOX_BASE_URL=server.origin, ABX_SANDBOX_URL=server.origin,
            ABX_VOLUME_API_URL=server.origin, **names,
        )  # fmt: skip
        done = subprocess.run(
            [sys.executable, file], cwd=tmp_path, env=env, capture_output=True, text=True, timeout=60, check=False
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    return run


CODE = """
import asyncio
from agent_sandbox import ConnectionConfig
from agent_sandbox.code_interpreter import AsyncSandbox, Context, Sandbox
options = dict(sandbox_id="x", connection_config=ConnectionConfig(), envd_version="0.6.4", envd_access_token="t")
told = []
e = Sandbox(**options).run_code("1+1", on_stdout=lambda m: told.append(m.line), on_result=lambda r: told.append(r.text))
print(e.text, e.logs.stdout, e.logs.stderr, e.error.name, e.execution_count, e.results[1].chart.type, told)
print(e.results[1].chart.elements[0].points, e.results[1].extra)
async def main():
    sb = AsyncSandbox(**options)
    async def later(m): told.append(m.line)
    e = await sb.run_code("1+1", context=Context("c", "python", "/"), on_stderr=later)
    print(e.text, told[-1])
    print(await sb.create_code_context(cwd="/w", language="r"), await sb.list_code_contexts())
    await sb.restart_code_context("c")
    await sb.remove_code_context(Context("c", "r", "/"))
asyncio.run(main())
"""


def test_code_interpreter(server, program):
    lines = [
        {"type": "number_of_executions", "execution_count": 3},
        {"type": "stdout", "text": "out\n", "timestamp": 1},
        {"type": "stderr", "text": "err\n", "timestamp": 2},
        {"type": "result", "text": "2", "is_main_result": True},
        {"type": "result", "custom": 1, "chart": {"type": "line", "title": "t", "elements": [{"label": "l", "points": [[1, 2]]}]}},
        {"type": "error", "name": "N", "value": "v", "traceback": "t"},
        {"type": "end_of_execution"},
    ]

    def answer(method, path, body):
        if path == "/execute":
            return 200, b"".join(json.dumps(line).encode() + b"\n" for line in lines)
        context = {"id": "c", "language": "r", "cwd": "/w"}
        return (201, context) if method == "POST" else (200, [context])

    server.answer = answer
    assert program(CODE).splitlines() == [
        "2 ['out\\n'] ['err\\n'] N 3 line ['out\\n', '2', None]",
        "[(1, 2)] {'custom': 1}",
        "2 err",
        "",
        "Context(id='c', language='r', cwd='/w') [Context(id='c', language='r', cwd='/w')]",
    ]
    routes = [(method, path) for method, path, _, _ in server.seen]
    assert routes == [
        ("POST", "/execute"), ("POST", "/execute"), ("POST", "/contexts"), ("GET", "/contexts"), ("POST", "/contexts/c/restart"),
        ("DELETE", "/contexts/c"),
    ]  # fmt: skip
    assert all(headers["X-Access-Token"] == "t" for _, _, headers, _ in server.seen)
    assert json.loads(server.seen[1][3])["context_id"] == "c"


VOLUME = """
from agent_sandbox import NotFoundException, Volume, VolumeException, AuthenticationException
v = Volume.create("data")
print(v.volume_id, v.name, v.token)
print(v.write_file("/a b", "ä", mode=0o600, force=True).mtime.isoformat())
print(v.read_file("/a b"), v.read_file("/a b", format="bytes"), list(v.read_file("/a b", format="stream")))
print([e.name for e in v.list("/", depth=2)], v.get_info("/a b").type, v.make_dir("/d", force=True).size, v.exists("/a b"))
print(v.update_metadata("/a b", uid=1).uid, v.remove("/a b"))
print(Volume.list(), Volume.get_info("v1"), Volume.destroy("v1"), Volume.destroy("none"))
for call in (lambda: v.read_file("/none"), lambda: v.read_file("/none", format="stream"), lambda: Volume.connect("none")):
    try: call()
    except NotFoundException as e: print(type(e).__name__, e)
try: Volume("v", "n").list("/")
except AuthenticationException as e: print(type(e).__name__)
"""


def test_volumes(server, program):
    stat = {
        "name": "a b", "type": "file", "path": "/a b", "size": 2, "mode": 384, "uid": 1, "gid": 0, "target": None,
        "atime": "2026-01-01T00:00:00Z", "mtime": "2026-01-01T00:00:00.123456789Z", "ctime": "2026-01-01T00:00:00.5+01:00",
    }  # fmt: skip

    def answer(method, path, body):
        if "none" in path:
            return 404, {"code": 404, "message": "nothing here"}
        if path.startswith("/volumecontent/v1/file"):
            return (201, stat) if method == "PUT" else (200, "ä".encode())
        if path.startswith("/volumecontent/v1/dir"):
            return (201, stat) if method == "POST" else (200, [stat])
        if path.startswith("/volumecontent"):
            return (204, b"") if method == "DELETE" else (200, stat)
        if method == "DELETE":
            return 204, b""
        volume = {"volumeID": "v1", "name": "data", "token": "secret"}
        return (201, volume) if method == "POST" else (200, [volume] if path == "/volumes" else volume)

    server.answer = answer
    assert program(VOLUME).splitlines() == [
        "v1 data secret",
        "2026-01-01T00:00:00.123456+00:00",
        "ä b'\\xc3\\xa4' [b'\\xc3\\xa4']",
        "['a b'] file 2 True",
        "1 None",
        "[VolumeInfo(volume_id='v1', name='data')] VolumeAndToken(volume_id='v1', name='data', token='secret') True False",
        "NotFoundException 404: nothing here",
        "NotFoundException 404: nothing here",
        "NotFoundException nothing here",
        "AuthenticationException",
    ]
    content = [(m, p, h) for m, p, h, _ in server.seen if p.startswith("/volumecontent")]
    assert all(h["Authorization"] == "Bearer secret" and "X-API-Key" not in h for _, _, h in content)
    assert content[0][1] == "/volumecontent/v1/file?path=%2Fa+b&mode=384&force=true"


TEMPLATE = """
import pathlib
pathlib.Path("in").mkdir(); pathlib.Path("in/a.txt").write_text("a"); pathlib.Path("in/b.log").write_text("b")
pathlib.Path(".dockerignore").write_text("*.log\\n")
from agent_sandbox import BuildException, Template
lines = []
t = Template(file_context_path=".").from_base_image().copy("in", "/in").run_cmd("x")
info = Template.build(t, "name:tag", on_build_logs=lambda e: lines.append(e.message))
print(info, lines)
print(Template.exists("yes"), Template.exists("none"), Template.get_tags("t")[0].tag, Template.assign_tags("a", "b"))
try: Template.build(Template().from_base_image().run_cmd("bad"), "bad")
except BuildException as e: print(e)
"""


def test_template_build(server, program, tmp_path):
    polls = []

    def answer(method, path, body):
        if "none" in path:
            return 404, {"code": 404, "message": "nothing here"}
        if path == "/v3/templates":
            name = json.loads(body)["name"]
            return 202, {"templateID": name, "buildID": "b1", "aliases": [], "names": [], "public": False, "tags": ["tag"]}
        if "/files/" in path:
            return 201, {"present": False, "url": server.origin + "/upload"}
        if path.startswith("/upload"):
            return 200, b""
        if "/status" in path:
            polls.append(path)
            is_bad = "/bad/" in path
            entry = {"timestamp": "2026-01-01T00:00:00Z", "level": "info", "message": "\x1b[31mline\x1b[0m"}
            told = {"templateID": "t", "buildID": "b1", "logs": [], "logEntries": [entry] if "logsOffset=0" in path else []}
            if is_bad:
                return 200, {**told, "status": "error", "reason": {"message": "it broke", "step": "1"}}
            return 200, {**told, "status": "building" if len(polls) == 1 else "ready"}
        if path == "/templates/tags":
            return 201, {"buildID": "b1", "tags": ["b"]}
        if path.endswith("/tags"):
            return 200, [{"tag": "x", "buildID": "b1", "createdAt": "2026-01-01T00:00:00Z"}]
        return (202, b"") if method == "POST" else (200, {"public": True, "templateID": "t"})

    server.answer = answer
    assert program(TEMPLATE).splitlines() == [
        "BuildInfo(template_id='name:tag', build_id='b1', name='name:tag', alias='name:tag', tags=['tag']) "
        "['Build started', 'line', 'Build finished']",
        "True False x TemplateTagInfo(build_id='b1', tags=['b'])",
        "it broke (step 1)",
    ]
    start = json.loads(next(body for m, p, _, body in server.seen if m == "POST" and p.startswith("/v2/templates/name")))
    assert [step["type"] for step in start["steps"]] == ["COPY", "RUN"] and len(start["steps"][0]["filesHash"]) == 64
    import io
    import tarfile

    upload = next((h, body) for m, p, h, body in server.seen if p == "/upload")
    assert sorted(tarfile.open(fileobj=io.BytesIO(upload[1])).getnames()) == ["in", "in/a.txt"]
    assert "X-API-Key" not in upload[0] and "Authorization" not in upload[0]


UPLOAD = """
import asyncio, io
from agent_sandbox import AsyncSandbox, ConnectionConfig, Sandbox
options = dict(sandbox_id="x", connection_config=ConnectionConfig(), envd_version="0.6.4")
class Broken(io.RawIOBase):
    def __init__(self, good): self.good = good
    def read(self, size=-1):
        self.good -= 1
        if self.good < 0: raise ValueError("the source broke")
        return b"x" * 1000
sb = Sandbox(**options)
print(sb.files.write("/x", io.BytesIO(b"y" * 1000000)).path, sb.files.write("/x", io.StringIO("ä" * 10)).path)
for good in (0, 3):
    try: sb.files.write("/x", Broken(good))
    except ValueError as e: print(e)
async def main():
    a = AsyncSandbox(**options)
    print((await a.files.write("/x", io.BytesIO(b"y" * 1000000))).path)
    try: await a.files.write("/x", Broken(2))
    except ValueError as e: print(e)
asyncio.run(main())
print(sb.files.write("/x", b"after").path)
"""


def test_uploads_of_file_objects(server, program):
    server.answer = lambda method, path, body: (200, [{"name": "x", "type": "file", "path": "/x"}])
    broke = "the source broke"
    assert program(UPLOAD).splitlines() == ["/x /x", broke, broke, "/x", broke, "/x"]
    assert [len(body) for _, _, _, body in server.seen if len(body) in (1000000, 20)] == [1000000, 20, 1000000]


def test_arguments_that_cannot_be_are_told_by_name(server, program):
    out = program(
        """
from agent_sandbox import ConnectionConfig, Sandbox, InvalidArgumentException
sb = Sandbox(sandbox_id="x", connection_config=ConnectionConfig(), envd_version="0.6.4")
for call in (
    lambda: sb.commands.run("a\\0b"), lambda: sb.commands.run("x", timeout=-1), lambda: sb.commands.run(7),
    lambda: sb.commands.run("x", envs={"A": 1}), lambda: sb.files.read("\\ud800"), lambda: sb.commands.kill(-1),
    lambda: sb.files.write("/x", 7), lambda: Sandbox.create(network={"no": 1}), lambda: sb.get_host(70000),
    lambda: ConnectionConfig(api_url="ftp://x"), lambda: sb.commands.run("x", request_timeout=float("nan")),
):
    try: print("no error", call())
    except (InvalidArgumentException, TypeError) as e: print(type(e).__name__, e)
"""
    )
    lines = out.splitlines()
    for line, word in zip(
        lines, ("cmd", "timeout", "cmd", "envs", "path", "pid", "data", "network", "port", "base_url", "request_timeout"), strict=True
    ):
        assert word in line and not line.startswith("no error"), lines
    assert server.seen == []


def test_an_unknown_argument_is_told_with_the_method_that_was_called(server, program):
    """Also where the method hands its keyword arguments on, in each form of it, and before anything is asked."""
    out = program(
        """
import asyncio
from agent_sandbox import *
from agent_sandbox.code_interpreter import Sandbox as Code
config = ConnectionConfig()
sb = Sandbox(sandbox_id="x", connection_config=config)
asb = AsyncSandbox(sandbox_id="x", connection_config=config)
volume = Volume("v", "n", "t")
class Own(Sandbox):
    @classmethod
    def create(cls, *args, **opts): return super().create(*args, **opts)
for call in (
    lambda: Sandbox.create(tiemout=3), lambda: Code.create(tmplate="x"), lambda: Own.create(tiemout=3),
    lambda: Sandbox.connect("x", tiemout=3), lambda: sb.connect(tiemout=3), lambda: sb.kill(request_timout=None),
    lambda: Sandbox.kill("x", request_timout=1), lambda: sb.list_snapshots(limt=1), lambda: Sandbox.list_snapshots(limt=1),
    lambda: Sandbox.list(limt=1), lambda: Sandbox.delete_snapshot("x", zzz=1), lambda: SandboxPaginator(limt=1),
    lambda: Sandbox.list().next_items(zzz=1), lambda: Template.alias_exists("x", domian="x"), lambda: Volume.create("x", domian="x"),
    lambda: volume.list("/", dept=1), lambda: Volume.list(domian="x"), lambda: volume.read_file("/x", fromat="text"),
    lambda: asyncio.run(AsyncSandbox.create(tiemout=3)), lambda: asyncio.run(asb.pause(keep_memry=True)),
    lambda: asyncio.run(AsyncTemplate.exists("x", domian="x")), lambda: AsyncSandbox.list(limt=1),
):
    try: print("no error", call())
    except TypeError as e: print(e)
"""
    )
    got = "{}() got an unexpected keyword argument '{}'".format
    meant = "{}. Did you mean '{}'?".format
    assert out.splitlines() == [
        meant(got("Sandbox.create", "tiemout"), "timeout"), meant(got("Sandbox.create", "tmplate"), "template"),
        meant(got("Sandbox.create", "tiemout"), "timeout"), meant(got("Sandbox.connect", "tiemout"), "timeout"),
        meant(got("Sandbox.connect", "tiemout"), "timeout"), meant(got("Sandbox.kill", "request_timout"), "request_timeout"),
        meant(got("Sandbox.kill", "request_timout"), "request_timeout"), meant(got("Sandbox.list_snapshots", "limt"), "limit"),
        meant(got("Sandbox.list_snapshots", "limt"), "limit"), meant(got("Sandbox.list", "limt"), "limit"),
        got("Sandbox.delete_snapshot", "zzz"), meant(got("SandboxPaginator", "limt"), "limit"),
        got("SandboxPaginator.next_items", "zzz"), meant(got("Template.alias_exists", "domian"), "domain"),
        meant(got("Volume.create", "domian"), "domain"), meant(got("Volume.list", "dept"), "depth"),
        meant(got("Volume.list", "domian"), "domain"), meant(got("Volume.read_file", "fromat"), "format"),
        meant(got("AsyncSandbox.create", "tiemout"), "timeout"), meant(got("AsyncSandbox.pause", "keep_memry"), "keep_memory"),
        meant(got("AsyncTemplate.exists", "domian"), "domain"), meant(got("AsyncSandbox.list", "limt"), "limit"),
    ]  # fmt: skip
    assert server.seen == []


def test_network_has_the_names_of_the_wire(server, program):
    answers = {"sandboxID": "x", "templateID": "base", "clientID": "c", "envdVersion": "0.6.4", "envdAccessToken": "t"}
    told = {"dnsServers": ["1.1.1.1"], "httpsPorts": [443], "egressProxy": {"address": "p.test:1", "username": "u", "tls": {"enabled": True, "serverName": "n.test"}}}
    detail = {"startedAt": "2026-01-01T00:00:00Z", "endAt": "2026-01-01T00:05:00Z", "cpuCount": 1, "memoryMB": 1, "diskSizeMB": 1, "state": "running", "network": told}
    server.answer = lambda method, path, body: (201, answers) if method == "POST" else (204, b"") if method == "PUT" else (200, {**answers, **detail})
    out = program(
        """
from agent_sandbox import Sandbox
proxy = {"address": "p.test:1", "username": "u", "password": "w", "tls": {"server_name": "n.test", "ca_cert": "PEM"}}
sb = Sandbox.create(network={"dns_servers": ["1.1.1.1"], "https_ports": [443], "egress_proxy": proxy})
sb.update_network({"egress_proxy": {"address": "p.test:1", "tls": True}})
sb.update_network({"egress_proxy": {"address": "p.test:1", "tls": False}})
print(sorted(sb.get_info().network.items()))
for wrong in ({"egress_proxy": {"adress": "x"}}, {"egress_proxy": {"address": "x", "tls": {"ca": ""}}}):
    try: Sandbox.create(network=wrong)
    except Exception as e: print(type(e).__name__, e)
"""
    )
    lines = out.splitlines()
    info = {"address": "p.test:1", "username": "u", "tls": {"server_name": "n.test"}}
    assert lines[0] == str([("dns_servers", ["1.1.1.1"]), ("egress_proxy", info), ("https_ports", [443])])
    assert lines[1].startswith("InvalidArgumentException network: egress_proxy: no such key 'adress'")
    assert lines[2].startswith("InvalidArgumentException network: egress_proxy: tls: no such key 'ca'")
    create, *updates = [json.loads(body) for method, _, _, body in server.seen if method in ("POST", "PUT")]
    whole = {"enabled": True, "serverName": "n.test", "caCert": "PEM"}
    sent = {"address": "p.test:1", "username": "u", "password": "w", "tls": whole}
    assert create["network"] == {"dnsServers": ["1.1.1.1"], "httpsPorts": [443], "egressProxy": sent}
    assert updates == [{"egressProxy": {"address": "p.test:1", "tls": {"enabled": True}}}, {"egressProxy": {"address": "p.test:1"}}]


def test_messages_say_what_to_do_next(server, program):
    """Which value of a dict is wrong, and which limit gives more time; errors found before a request have a code too."""
    server.answer = lambda method, path, body: (502, {"sandboxId": "x", "message": "The sandbox was not found", "code": 502})
    out = program(
        """
from agent_sandbox import ConnectionConfig, Sandbox, SandboxException
sb = Sandbox(sandbox_id="x", connection_config=ConnectionConfig(), envd_version="0.6.4")
for call in (lambda: sb.commands.run("x", envs={"A": 1}), lambda: sb.commands.run("x", envs={1: "A"}),
             lambda: sb.files.list("/", depth=0), lambda: sb.files.read("/x")):
    try: print("no error", call())
    except (SandboxException, TypeError) as e: print(type(e).__name__, getattr(e, "code", "-"), e)
"""
    )
    assert out.splitlines() == [
        "TypeError - envs: the value of 'A' has to be a str, not int",
        "TypeError - a key of envs has to be a str, not int",
        "InvalidArgumentException invalid_argument depth has to be 1 or more, not 0",
        "TimeoutException unavailable The sandbox was not found; killed, or its time was over, which timeout of Sandbox.create and "
        "set_timeout set",
    ]


def test_exceptions_carry_the_server_s_word(server, program):
    server.answer = lambda method, path, body: (409, {"code": 409, "message": "no", "error_code": "some_word"})
    run = program("""
from agent_sandbox import Sandbox, SandboxException, Volume, VolumeException
for work, kind in ((lambda: Sandbox.create(), SandboxException), (lambda: Volume.create("v"), VolumeException)):
    try:
        work()
    except kind as e:
        print(type(e).__name__, e.http_status, e.error_code)
""")
    assert run.splitlines() == ["SandboxException 409 some_word", "VolumeException 409 some_word"]


FORK = """
import asyncio
from agent_sandbox import AsyncSandbox, RateLimitException, Sandbox, SandboxException, SandboxNotFoundException

def told(made):
    for one in made:
        if isinstance(one, Exception):
            print(type(one).__name__, one.http_status, one)
        else:
            print(one.sandbox_id, type(one).__name__, one.sandbox_domain, one.traffic_access_token, one.files is not None)

class Own(Sandbox):
    pass

box = Own.connect("ibox")
told(box.fork(count=4, timeout=60))
told(Sandbox.fork("ibox"))

async def main():
    told(await AsyncSandbox.fork("ibox", timeout=60, count=4))
    told(await (await AsyncSandbox.connect("ibox")).fork())
asyncio.run(main())

for work, kind in ((lambda: box.fork(count=0), SandboxException), (lambda: box.fork(count=101), SandboxException),
                   (lambda: Sandbox.fork("igone"), SandboxNotFoundException), (lambda: Sandbox.fork("ipaused"), SandboxException)):
    try:
        work()
    except kind as e:
        print(type(e).__name__, e.http_status, e)
"""


def test_fork_gives_sandboxes_and_exceptions(server, program):
    def made(name):
        return {"sandboxID": name, "templateID": "base", "envdVersion": "0.6.13", "envdAccessToken": f"t-{name}", "domain": "d.test",
                "trafficAccessToken": f"p-{name}", "clientID": "c", "alias": "base"}  # fmt: skip

    four = [{"sandbox": made("ione")}, {"error": {"code": 429, "message": "too many"}}, {"sandbox": made("itwo")},
            {"error": {"code": 507, "message": "disk full"}}]  # fmt: skip

    def answer(method, path, body):
        if path.endswith("/connect"):
            return 200, made("ibox")
        if path == "/sandboxes/igone/fork":
            return 404, {"code": 404, "message": "Sandbox 'igone' was not found"}
        if path == "/sandboxes/ipaused/fork":
            return 409, {"code": 409, "message": "Sandbox 'ipaused' is paused and cannot be forked; resume it first"}
        return 201, four if json.loads(body)["count"] == 4 else four[:1]

    server.answer = answer
    lines = program(FORK).splitlines()
    for kind, at in (("Own", 0), ("AsyncSandbox", 5)):
        assert lines[at : at + 4] == [
            f"ione {kind} d.test p-ione True",
            "RateLimitException 429 429: too many",
            f"itwo {kind} d.test p-itwo True",
            "SandboxException 507 507: disk full",
        ]
    assert lines[4] == "ione Sandbox d.test p-ione True" and lines[9] == "ione AsyncSandbox d.test p-ione True"
    assert [line.split(" ", 1)[0] for line in lines[10:]] == [
        "InvalidArgumentException", "InvalidArgumentException", "SandboxNotFoundException", "SandboxException"]  # fmt: skip
    assert "count: 0 (1 to 100 are possible)" in lines[10] and "is paused" in lines[13]
    bodies = [json.loads(body) for _, path, _, body in server.seen if path == "/sandboxes/ibox/fork"]
    assert bodies == [{"count": 4, "timeout": 60}, {"count": 1}, {"count": 4, "timeout": 60}, {"count": 1}]
