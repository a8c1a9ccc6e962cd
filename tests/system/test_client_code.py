"""libabx's code interpreter client against a server that says what a test wants (e2b.md 5, client.md 3.7)."""

import ctypes
import json
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

import libabx

END = {"type": "end_of_execution"}


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def answer(self):
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        self.server.seen.append((self.command, self.path, dict(self.headers.items()), body))
        if self.path == "/health":
            status, parts = self.server.health
        else:
            status, parts = self.server.reply
        self.send_response(status)
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        try:
            for part in parts:
                if part is None:  # cut here
                    self.close_connection = True
                    return
                if isinstance(part, (int, float)):
                    time.sleep(part)
                    continue
                self.wfile.write(b"%x\r\n%s\r\n" % (len(part), part))
                self.wfile.flush()
            self.wfile.write(b"0\r\n\r\n")
        except OSError:
            self.close_connection = True

    do_GET = do_POST = do_DELETE = answer


@pytest.fixture
def server():
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    server.seen, server.health = [], (204, [])
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield server
    server.shutdown()
    server.server_close()


@pytest.fixture
def run(abx, server):
    """Calls a function of code.h with the sandbox filled in; gives the call."""
    config = abx.config(api_key="e2b_00", sandbox_url=f"http://127.0.0.1:{server.server_port}")
    sandbox = abx.sandbox(config, sandbox_id="i0", envd_version="0.6.13", envd_access_token="secret-token")
    with abx.client() as client:
        yield lambda name, *args: client.call(name, sandbox, *args)
    abx.c.abx_sandbox_unref(sandbox)
    abx.c.abx_config_unref(config)


def lines(*messages):
    return [json.dumps(message).encode() + b"\n" for message in messages]


def texts(call):
    return [json.loads(ctypes.string_at(event.data, event.size)) for event in call.events(20)]


def test_an_execution(abx, server, run):
    said = [{"type": "stdout", "text": "a"}, {"type": "result", "png": "x" * 3_000_000}, {"type": "number_of_executions", "execution_count": 1}]
    server.reply = (200, lines(said[0], {"type": "keepalive"}, said[1]) + [b"\r\n\n"] + lines(said[2], END))
    options = abx.struct("abx_code_opts", language="python", envs={"A": "\u00fc"})
    assert texts(run("abx_code_run", "print('\u00fc')\n", options)) == said
    (method, path, headers, body), = server.seen
    assert (method, path) == ("POST", "/execute")
    assert json.loads(body) == {"code": "print('\u00fc')\n", "language": "python", "env_vars": {"A": "\u00fc"}}
    assert headers["E2b-Sandbox-Port"] == "49999" and headers["X-Access-Token"] == "secret-token"


def test_lines_cut_anywhere(abx, server, run):
    said = [{"type": "stdout", "text": "\u00fc" * 50}, {"type": "stderr", "text": "b"}]
    whole = b"".join(lines(*said, END))
    server.reply = (200, [whole[i : i + 7] for i in range(0, len(whole) - 1, 7)])  # and no line end at the end
    assert texts(run("abx_code_run", "x", None)) == said


def test_an_answer_that_ends_too_early_is_data_loss(server, run):
    server.reply = (200, lines({"type": "stdout", "text": "a"}))
    with pytest.raises(libabx.Error, match="ended without an end event") as caught:
        texts(run("abx_code_run", "x", None))
    assert caught.value.code == "DATA_LOSS"


def test_a_killed_sandbox(server, run):
    server.reply = (200, [*lines({"type": "stdout", "text": "a"}), None])
    server.health = (502, [b'{"sandboxId":"i0","message":"The sandbox was not found","code":502}'])
    with pytest.raises(libabx.Error) as caught:
        texts(run("abx_code_run", "x", None))
    assert caught.value.reason == "SANDBOX_GONE"


@pytest.mark.parametrize("line", [b"garbage\n", b"[1]\n", b'{"text":"no type"}\n', b'{"type":"a"\n'])
def test_malformed_lines(server, run, line):
    server.reply = (200, [*lines({"type": "stdout", "text": "a"}), line, *lines(END)])
    with pytest.raises(libabx.Error) as caught:
        texts(run("abx_code_run", "x", None))
    assert caught.value.reason == "PROTOCOL" and "127.0.0.1" in caught.value.message


def test_silence_ends_at_the_timeout_though_keepalives_come(abx, server, run):
    server.reply = (200, [part for _ in range(50) for part in (*lines({"type": "keepalive"}), 0.05)])
    with pytest.raises(libabx.Error, match="300 ms") as caught:
        texts(run("abx_code_run", "x", abx.struct("abx_code_opts", timeout_ms=300)))
    assert caught.value.reason == "COMMAND_TIMEOUT"


def test_errors_of_the_server(server, run):
    server.reply = (404, [b"Context c1 not found"])
    with pytest.raises(libabx.Error, match="Context c1 not found") as caught:
        run("abx_code_context_restart", "c1", -1).wait()
    assert caught.value.code == "NOT_FOUND" and caught.value.http_status == 404


def test_language_and_context_exclude_each_other(abx, server, run):
    with pytest.raises(libabx.Error, match="INVALID_ARGUMENT"):
        run("abx_code_run", "x", abx.struct("abx_code_opts", language="r", context_id="c")).wait()
    assert server.seen == []


def test_contexts(server, run):
    one = {"id": "c/1", "language": "python", "cwd": "/home/user"}
    server.reply = (200, [json.dumps(one).encode()])
    assert json.loads(run("abx_code_context_create", "python", None, -1).wait().bytes()) == one
    server.reply = (200, [json.dumps([one]).encode()])
    assert json.loads(run("abx_code_context_list", -1).wait().bytes()) == [one]
    server.reply = (200, [b"null"])
    run("abx_code_context_restart", "c/1", -1).wait()
    run("abx_code_context_remove", "c/1", -1).wait()
    assert [(method, path, body) for method, path, _, body in server.seen] == [
        ("POST", "/contexts", b'{"language":"python"}'),
        ("GET", "/contexts", b""),
        ("POST", "/contexts/c%2F1/restart", b"{}"),
        ("DELETE", "/contexts/c%2F1", b""),
    ]
    server.reply = (200, [b"not json"])
    with pytest.raises(libabx.Error, match="no JSON"):
        run("abx_code_context_list", -1).wait()
