"""libabx's client of the in-image server API against the published agent-sandbox-server, and against answers that
break the contract (client.md 4.2)."""

import ctypes
import json
import socket
import subprocess
import threading
import urllib.request
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from waiting import BUSY_S, until

import libabx

TOKEN = "t0ken-of-the-server"


def free_port():
    with socket.create_server(("127.0.0.1", 0)) as s:
        return s.getsockname()[1]


@pytest.fixture(scope="module")
def published(tools_dir, tmp_path_factory):
    """Base URLs of the published server, run on this machine in a folder of its own."""
    folder = tmp_path_factory.mktemp("server")
    http, pty = free_port(), free_port()
    program = next(tools_dir.glob("agent-sandbox-client-*/bin/agent-sandbox-server"))
    command = [program, "serve", "--host", "127.0.0.1", "--port", str(http), "--pty-port", str(pty), "--base-dir", folder]
    server = subprocess.Popen(
        command,
        cwd=folder,
        env={"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "HOME": str(folder), "ABX_SERVER_TOKEN": TOKEN},
        stdout=(folder / "log").open("wb"),
        stderr=subprocess.STDOUT,
    )

    def is_up():
        assert server.poll() is None, (folder / "log").read_text()
        try:
            return urllib.request.urlopen(f"http://127.0.0.1:{http}/health", timeout=BUSY_S).read() is not None
        except OSError:
            return False

    until(is_up, lambda: f"the server: {(folder / 'log').read_text()}")
    yield {"base_url": f"http://127.0.0.1:{http}", "pty_url": f"ws://127.0.0.1:{pty}", "folder": folder}
    server.terminate()
    assert server.wait(BUSY_S) is not None


class User:
    """A client with the address of one server."""

    def __init__(self, abx, client, **parts):
        self.abx, self.client = abx, client
        self.config = abx.config(api_key="e2b_00", api_url="http://127.0.0.1:1")
        self.server, error = ctypes.c_void_p(), abx.headers.structs["abx_error"]()
        given = abx.struct("abx_server_parts", **parts)
        made = abx.c.abx_server_new(self.config, ctypes.byref(given), ctypes.byref(self.server), ctypes.byref(error))
        abx.c.abx_config_unref(self.config)
        if made:
            raise libabx.Error(abx, error)

    def options(self, method, path, body=None, **more):
        body = json.dumps(body) if isinstance(body, (dict, list)) else body
        return self.abx.struct("abx_server_opts", method=method, path=path, body_json=body, **more)

    def ask(self, method, path, body=None, **more):
        call = self.client.call("abx_server_request", self.server, self.options(method, path, body, **more))
        return json.loads(call.wait().bytes())

    def stream(self, method, path, body=None, **more):
        call = self.client.call("abx_server_stream", self.server, self.options(method, path, body, **more))
        for event in call.events(30):
            yield event.text.decode(), json.loads(ctypes.string_at(event.data, event.size))


@pytest.fixture
def user(abx, client, published):
    user = User(abx, client, base_url=published["base_url"], pty_url=published["pty_url"], token=TOKEN)
    yield user
    abx.c.abx_server_unref(user.server)


def test_health_capabilities_and_commands(user):
    assert user.ask("GET", "/health")["status"] == "ok"
    assert user.ask("GET", "/capabilities")["api_version"] == 2
    assert isinstance(user.ask("GET", "/commands")["commands"], list)


def test_files_and_shell(user, published):
    path = published["folder"] / "a \u00fc"
    user.ask("POST", "/files/mkdir", {"path": str(path)})
    listed = user.ask("GET", "/files/list", query="path=" + urllib.request.quote(str(published["folder"])))
    assert "a \u00fc" in [entry["name"] for entry in listed["entries"]]
    done = user.ask("POST", "/shell", {"command": "sh -c 'echo out; echo err >&2; exit 3'"})
    assert (done["stdout"], done["stderr"], done["exit_code"]) == ("out\n", "err\n", 3)


def test_shell_stream(user):
    command = "sh -c 'for i in 1 2 3; do echo line $i; done; exit 4'"
    said = list(user.stream("POST", "/shell/stream", {"command": command}))
    assert [data["data"] for name, data in said if name == "stdout"] == ["line 1", "line 2", "line 3"]
    assert said[-1][0] == "exit" and said[-1][1]["exit_code"] == 4


def test_terminal(abx, user):
    session = user.ask("POST", "/pty/sessions", {"shell": "/bin/sh", "cols": 80, "rows": 24})
    call = user.client.call("abx_server_pty", user.server, session["session_id"], -1)
    text = json.dumps({"type": "input", "data": "echo $((40+2))\n"}).encode()
    seen = ""
    for event in call.events(30):
        if event.kind == abx.constants["ABX_EVENT_START"]:
            assert abx.c.abx_websocket_send(call.handle, text, len(text), 1, None) == 0
            continue
        message = json.loads(ctypes.string_at(event.data, event.size))
        seen += message.get("data", "")
        if "42" in seen:
            break
    assert "42" in seen


def test_errors_of_the_published_server(abx, client, user, published):
    with pytest.raises(libabx.Error) as caught:
        user.ask("GET", "/files/stat", query="path=/no/such/file")
    assert caught.value.code in ("NOT_FOUND", "PERMISSION_DENIED") and caught.value.http_status in (404, 403)
    with pytest.raises(libabx.Error) as caught:
        user.ask("POST", "/shell", {"command": "sleep 30", "timeout": 1})
    assert caught.value.reason == "COMMAND_TIMEOUT"
    wrong = User(abx, client, base_url=published["base_url"], token="wrong")
    with pytest.raises(libabx.Error) as caught:
        wrong.ask("GET", "/files/list", query="path=/")
    assert caught.value.code == "UNAUTHENTICATED" and "wrong" not in caught.value.message
    abx.c.abx_server_unref(wrong.server)


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def answer(self):
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        self.server.seen.append((self.command, self.path, dict(self.headers.items()), body))
        status, body = self.server.reply
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    do_GET = do_POST = do_DELETE = answer


@pytest.fixture
def fake():
    fake = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    fake.daemon_threads = True
    fake.seen, fake.reply = [], (200, b"{}")
    fake.url = f"http://127.0.0.1:{fake.server_port}"
    threading.Thread(target=fake.serve_forever, daemon=True).start()
    yield fake
    fake.shutdown()
    fake.server_close()


@pytest.mark.parametrize(
    "status, body, code, reason",
    [
        (401, {"error": "no", "type": "Unauthorized"}, "UNAUTHENTICATED", "NONE"),
        (403, {"error": "no", "type": "PolicyDenied", "code": "path_denied"}, "PERMISSION_DENIED", "NONE"),
        (409, {"error": "no", "code": "file_exists"}, "PERMISSION_DENIED", "NONE"),
        (409, {"error": "no"}, "ABORTED", "CONFLICT"),
        (404, {"error": "no", "code": "endpoint_disabled"}, "UNIMPLEMENTED", "NONE"),
        (404, {"error": "no", "type": "FileNotFoundError"}, "NOT_FOUND", "FILE_NOT_FOUND"),
        (404, {"error": "no"}, "NOT_FOUND", "NONE"),
        (413, {"error": "no"}, "RESOURCE_EXHAUSTED", "TOO_LARGE"),
        (429, {"error": "no", "retry_after": 3}, "RESOURCE_EXHAUSTED", "RATE_LIMITED"),
        (408, {"error": "no", "type": "TimeoutError"}, "DEADLINE_EXCEEDED", "COMMAND_TIMEOUT"),
        (500, {"error": "no"}, "UNKNOWN", "NONE"),
        (500, b"<html>", "UNKNOWN", "NONE"),
    ],
)
def test_errors_keep_their_object(abx, client, fake, status, body, code, reason):
    fake.reply = (status, body if isinstance(body, bytes) else json.dumps(body).encode())
    user = User(abx, client, base_url=fake.url)
    call = client.call("abx_server_request", user.server, user.options("POST", "/x", {}))
    with pytest.raises(libabx.Error) as caught:
        call.wait()
    assert (caught.value.code, caught.value.reason, caught.value.http_status) == (code, reason, status)
    assert caught.value.error_code == (body.get("code", "") if isinstance(body, dict) else "")
    assert call.bytes() == fake.reply[1] and len(fake.seen) == 1
    assert caught.value.message == ("no" if isinstance(body, dict) else "the server answered with status 500")
    abx.c.abx_server_unref(user.server)


def test_addresses_and_headers(abx, client, fake):
    user = User(abx, client, base_url=fake.url + "/base/?key=1", token=TOKEN, headers={"X-Own": "x", "x-access-token": "mine"})
    assert user.ask("GET", "/a%20b", query="q=2") == {}
    (method, path, headers, _), = fake.seen
    assert (method, path) == ("GET", "/base/a%20b?key=1&q=2")
    assert headers["Authorization"] == f"Bearer {TOKEN}" and headers["x-access-token"] == "mine" and headers["X-Own"] == "x"
    for options in ({"query": "q=2&key=3"}, {"path": "no-slash"}, {"path": "/x?y"}, {"body": "{"}):
        with pytest.raises(libabx.Error, match="INVALID_ARGUMENT"):
            user.ask("GET", options.pop("path", "/x"), options.pop("body", None), **options)
    assert len(fake.seen) == 1
    abx.c.abx_server_unref(user.server)
    for parts, word in (
        ({"base_url": "ftp://h"}, "base_url"),
        ({"base_url": None}, "base_url"),
        ({"base_url": "http://h", "pty_url": "http://h"}, "pty_url"),
        ({"base_url": "http://h", "headers": {"Host": "x"}}, "Host"),
        ({"base_url": "http://h", "headers": {"Transfer-Encoding": "x"}}, "Transfer-Encoding"),
        ({"base_url": "http://h", "request_timeout_ms": -2}, "request_timeout_ms"),
    ):
        with pytest.raises(libabx.Error, match=word):
            User(abx, client, **parts)


@pytest.mark.parametrize("body", [b"", b"[]", b"null", b"{", b"garbage", b'"x"'])
def test_answers_that_are_no_objects(abx, client, fake, body):
    fake.reply = (200, body)
    user = User(abx, client, base_url=fake.url)
    with pytest.raises(libabx.Error, match="no JSON object") as caught:
        user.ask("POST", "/x")
    assert caught.value.reason == "PROTOCOL"
    abx.c.abx_server_unref(user.server)


def test_redirects_are_not_followed(abx, client, fake):
    fake.reply = (307, b"")
    user = User(abx, client, base_url=fake.url, token=TOKEN)
    with pytest.raises(libabx.Error, match="status 307"):
        user.ask("GET", "/x")
    assert len(fake.seen) == 1
    abx.c.abx_server_unref(user.server)
