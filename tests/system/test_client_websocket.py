"""libabx's WebSocket client against PyPI websockets, and against servers that break the protocol."""

import base64
import ctypes
import hashlib
import os
import re
import socket
import subprocess
import threading
import time
from pathlib import Path

import pytest

import libabx
from waiting import BUSY_S

GUID = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"


@pytest.fixture(scope="module")
def port(tools_dir):
    python = next(tools_dir.glob("agent-sandbox-client-*/bin/python"))
    peer = subprocess.Popen(
        [python, Path(__file__).with_name("websocket_peer.py")], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    yield int(peer.stdout.readline())
    peer.stdin.close()
    assert peer.wait(BUSY_S) == 0


@pytest.fixture
def client(abx):
    with abx.client() as client:
        yield client


@pytest.fixture
def config(abx):
    config = abx.config(api_key="e2b_00", api_url="http://127.0.0.1:1")
    yield config
    abx.c.abx_config_unref(config)


def open_(abx, client, config, url, **options):
    return client.call("abx_websocket_open", config, abx.struct("abx_websocket_opts", url=url, **options))


def send(abx, call, data, text=True):
    error = abx.headers.structs["abx_error"]()
    if abx.c.abx_websocket_send(call.handle, data, len(data), int(text), ctypes.byref(error)):
        raise libabx.Error(abx, error)


def close(abx, call, code, reason=b""):
    error = abx.headers.structs["abx_error"]()
    if abx.c.abx_websocket_close(call.handle, code, reason, ctypes.byref(error)):
        raise libabx.Error(abx, error)


def kind(abx, event):
    names = ["START", "OUTPUT", "END", "FILE", "DATA"]
    return names[event.kind - abx.constants["ABX_EVENT_START"]]


def data(event):
    return ctypes.string_at(event.data, event.size)


def opened(abx, client, config, url, **options):
    call = open_(abx, client, config, url, **options)
    assert kind(abx, call.next()) == "START"
    return call


def test_echo_of_texts_and_bytes_of_all_lengths(abx, client, config, port):
    call = opened(abx, client, config, f"ws://127.0.0.1:{port}/echo")
    for message in (b"", b"hi", "\u00fc\U0001f600".encode(), b"y" * 125, b"y" * 126, b"y" * 65535, b"y" * 65536, b"y" * 900_000):
        send(abx, call, message)
        event = call.next()
        assert kind(abx, event) == "DATA" and event.exited == 1 and data(event) == message
    every = bytes(range(256))
    send(abx, call, every, text=False)
    event = call.next()
    assert data(event) == every and event.exited == 0


def test_fragments_are_put_together_and_the_server_closes(abx, client, config, port):
    call = opened(abx, client, config, f"ws://127.0.0.1:{port}/fragments")
    assert data(call.next()) == "a\u00fcc".encode()
    assert data(call.next()) == b"\x00\xff"
    event = call.next()
    assert kind(abx, event) == "END" and event.exit_code == 1000
    assert call.next() is None


def test_close_code_and_reason_come_as_the_last_event(abx, client, config, port):
    call = opened(abx, client, config, f"ws://127.0.0.1:{port}/close")
    event = call.next()
    assert kind(abx, event) == "END" and event.exit_code == 4321 and event.text.decode() == "enough \u00fc"
    assert call.next() is None and call.error() is None


def test_we_close(abx, client, config, port):
    call = opened(abx, client, config, f"ws://127.0.0.1:{port}/echo")
    send(abx, call, b"last words")
    assert data(call.next()) == b"last words"
    close(abx, call, 3000, b"bye")
    assert call.next().exit_code == 3000
    assert call.next() is None
    with pytest.raises(libabx.Error, match="FAILED_PRECONDITION"):
        send(abx, call, b"x")


def test_pings_are_answered(abx, client, config, port):
    call = opened(abx, client, config, f"ws://127.0.0.1:{port}/ping")
    assert data(call.next()) == b"pong came"


def test_a_cut_connection_is_an_error(abx, client, config, port):
    call = opened(abx, client, config, f"ws://127.0.0.1:{port}/cut")
    with pytest.raises(libabx.Error) as caught:
        while call.next():
            pass
    assert caught.value.reason == "DISCONNECTED" and f"127.0.0.1:{port}" in caught.value.message


def test_a_message_over_the_limit(abx, client, config, port):
    call = opened(abx, client, config, f"ws://127.0.0.1:{port}/large", max_message_bytes=199_999)
    with pytest.raises(libabx.Error, match="limit of 199999 bytes") as caught:
        call.next()
    assert caught.value.reason == "TOO_LARGE"


def test_a_slow_reader_holds_the_server_back(abx, client, config, port):
    """32 MiB in order, with about one in memory while nobody takes them."""
    call = opened(abx, client, config, f"ws://127.0.0.1:{port}/flood")
    before = int(re.search(r"VmRSS:\s+(\d+)", Path("/proc/self/status").read_text())[1])
    end = time.monotonic() + 1
    while time.monotonic() < end:
        abx.c.abx_client_wait(client.handle, 50)
    grown = int(re.search(r"VmRSS:\s+(\d+)", Path("/proc/self/status").read_text())[1]) - before
    assert grown < 8 << 10
    for number in range(2000):
        assert data(call.next())[:4] == number.to_bytes(4, "big")
    assert call.next().exit_code == 1000


def test_what_waits_to_be_sent_is_bounded(abx, client, config, port):
    call = opened(abx, client, config, f"ws://127.0.0.1:{port}/count")
    sent = 0
    with pytest.raises(libabx.Error, match="RESOURCE_EXHAUSTED"):
        while True:
            send(abx, call, b"z" * 100_000)
            sent += 100_000
    assert 1 << 20 <= sent < 2 << 20
    while True:  # it drains, and nothing is lost
        try:
            send(abx, call, b"end")
            break
        except libabx.Error:
            abx.c.abx_client_wait(client.handle, 100)
    assert data(call.next()) == str(sent + 3).encode()


def test_bad_arguments(abx, client, config, port):
    for url in (f"http://127.0.0.1:{port}/", "ws:/x", "ws://", "ws://a b/", "ws://u:p@h/", None):
        with pytest.raises(libabx.Error) as caught:
            open_(abx, client, config, url).wait()
        assert caught.value.code == "INVALID_ARGUMENT" and "url" in caught.value.message
    with pytest.raises(libabx.Error, match="header 0"):
        open_(abx, client, config, f"ws://127.0.0.1:{port}/echo", headers={"X": "a\r\nb"}).wait()
    call = opened(abx, client, config, f"ws://127.0.0.1:{port}/echo")
    with pytest.raises(libabx.Error, match="UTF-8"):
        send(abx, call, b"\xff")
    with pytest.raises(libabx.Error, match="1005"):
        close(abx, call, 1005)


def test_headers_and_protocol(abx, client, config, port):
    call = opened(abx, client, config, f"ws://127.0.0.1:{port}/headers", headers={"X-One": "1"}, protocol="two")
    seen = dict(eval(data(call.next())))  # noqa: S307: our own server's repr
    assert seen["x-one"] == "1" and seen["sec-websocket-protocol"] == "two" and seen["host"] == f"127.0.0.1:{port}"


@pytest.mark.parametrize(
    "path, code, reason, text",
    [("/refuse", "UNAUTHENTICATED", "NONE", "who are you?"), ("/gone", "UNAVAILABLE", "SANDBOX_GONE", "was not found")],
)
def test_refusals(abx, client, config, port, path, code, reason, text):
    with pytest.raises(libabx.Error) as caught:
        open_(abx, client, config, f"ws://127.0.0.1:{port}{path}").wait()
    assert (caught.value.code, caught.value.reason) == (code, reason) and text in caught.value.message


class Raw:
    """A server that answers one handshake with what `answer(key)` gives, then reads until the client leaves."""

    def __init__(self, answer):
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]
        self.answer, self.heard = answer, b""
        self.thread = threading.Thread(target=self.serve, daemon=True)
        self.thread.start()

    def serve(self):
        peer = self.listener.accept()[0]
        peer.settimeout(BUSY_S)
        head = b""
        while b"\r\n\r\n" not in head:
            head += peer.recv(65536)
        key = re.search(rb"Sec-WebSocket-Key: (\S+)", head)[1]
        answer = self.answer(base64.b64encode(hashlib.sha1(key + GUID).digest()))
        if answer is not None:
            peer.sendall(answer)
        try:
            while chunk := peer.recv(65536):
                self.heard += chunk
        except OSError:
            pass
        peer.close()

    def done(self):
        self.thread.join(BUSY_S)
        self.listener.close()
        assert not self.thread.is_alive()
        return self.heard


def accepted(key, more=b"", extra=b""):
    return b"HTTP/1.1 101 X\r\nUpgrade: websocket\r\nConnection: keep-alive, Upgrade\r\n" + extra + b"Sec-WebSocket-Accept: " + key + b"\r\n\r\n" + more


@pytest.mark.parametrize(
    "answer, text",
    [
        (lambda key: accepted(b"wrong"), "Sec-WebSocket-Accept"),
        (lambda key: accepted(key, extra=b"Sec-WebSocket-Extensions: permessage-deflate\r\n"), "extension"),
        (lambda key: accepted(key, extra=b"Sec-WebSocket-Protocol: x\r\n"), "protocol"),
        (lambda key: b"HTTP/1.1 101 X\r\nUpgrade: h2c\r\nConnection: Upgrade\r\n\r\n", "something else"),
        (lambda key: b"garbage\r\n\r\n", "answer"),
        (lambda key: accepted(key, b"\x81\x81zzzzx"), "masked"),
        (lambda key: accepted(key, b"\xc1\x00"), "reserved bits"),
        (lambda key: accepted(key, b"\x81\x01\xff"), "not UTF-8"),
        (lambda key: accepted(key, b"\x80\x00"), "continuation"),
    ],
)
def test_servers_that_break_the_protocol(abx, client, config, answer, text):
    server = Raw(answer)
    call = open_(abx, client, config, f"ws://127.0.0.1:{server.port}/")
    with pytest.raises(libabx.Error) as caught:
        while call.next():
            pass
    assert caught.value.reason == "PROTOCOL" and text in caught.value.message
    server.done()


def test_a_silent_server_meets_the_deadline(abx, client, config):
    server = Raw(lambda key: None)
    with pytest.raises(libabx.Error, match="handshake took too long") as caught:
        open_(abx, client, config, f"ws://127.0.0.1:{server.port}/", request_timeout_ms=300).wait()
    assert caught.value.reason == "REQUEST_TIMEOUT"
    server.done()


def test_a_server_that_answers_no_ping_is_given_up(abx, client, config):
    server = Raw(accepted)
    call = opened(abx, client, config, f"ws://127.0.0.1:{server.port}/", ping_interval_ms=200)
    with pytest.raises(libabx.Error, match="no answer to pings"):
        call.next()
    assert server.done().count(b"\x89\x80") >= 1


def test_a_server_that_never_answers_our_close(abx, client, config):
    server = Raw(accepted)
    call = opened(abx, client, config, f"ws://127.0.0.1:{server.port}/")
    close(abx, call, 1000)
    with pytest.raises(libabx.Error, match="closing handshake took too long"):
        call.next()
    assert server.done().startswith(b"\x88\x82")


def test_cancel_in_each_phase_leaves_no_descriptor(abx, config, port):
    before = len(os.listdir("/proc/self/fd"))
    server = Raw(lambda key: None)
    with abx.client() as client:
        open_(abx, client, config, f"ws://127.0.0.1:{port}/echo").cancel()
        handshake = open_(abx, client, config, f"ws://127.0.0.1:{server.port}/")
        end = time.monotonic() + 0.3
        while time.monotonic() < end:
            abx.c.abx_client_wait(client.handle, 50)
        handshake.cancel()
        call = opened(abx, client, config, f"ws://127.0.0.1:{port}/echo")
        call.cancel()
        with pytest.raises(libabx.Error, match="CANCELED"):
            call.wait()
        opened(abx, client, config, f"ws://127.0.0.1:{port}/echo").free()
        opened(abx, client, config, f"ws://127.0.0.1:{port}/echo")  # open when the client goes
    server.done()
    assert len(os.listdir("/proc/self/fd")) <= before
