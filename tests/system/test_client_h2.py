"""libabx over TLS and HTTP/2 with a private CA, on a service behind a proxy and on the service itself: streams, uploads,
cancels and kills share one connection."""

import os
import re

import pytest
from client_kit import Box, Error, Source, collect
from h2_front import H2Front
from http_fakes import Loop, make_certificates
from service import Service


@pytest.fixture(scope="module")
def service(build_dir, certificates):
    files = ["--tls-cert", certificates / "127.0.0.1.pem", "--tls-key", certificates / "127.0.0.1.key"]
    with Service(build_dir, *files, "--tls-listen", "127.0.0.1:0") as s:
        yield s


class Itself:
    """The service's own TLS port, in the place of a proxy."""

    streams = connections = None

    def __init__(self, service):
        self.port = int(re.search(r'serving TLS.* port="?(\d+)', (service.data_dir / "serve.log").read_text())[1])


@pytest.fixture(scope="module")
def certificates(tmp_path_factory):
    return make_certificates(tmp_path_factory.mktemp("tls"), "127.0.0.1")


@pytest.fixture(params=["proxy", "itself"])
def front(request, service, certificates):
    if request.param == "itself":
        yield Itself(service)
        return
    loop = Loop()
    f = H2Front(loop, certificates, service.port)
    yield f
    f.stop()
    loop.stop()


@pytest.fixture
def made(service):
    made = service.create()
    yield made
    service.kill(made["sandboxID"])


@pytest.fixture(params=["json", "protobuf"])
def box(request, abx, service, front, certificates, made):
    url = f"https://127.0.0.1:{front.port}"

    class Entrance:
        key, origin = service.key, url

    with abx.client() as client:
        config = {"ca_file": f"{certificates}/ca.pem"}
        b = Box(abx, client, Entrance, made, protobuf=request.param == "protobuf", config=config, envd_url=url)
        yield b
        b.close()


def test_calls_share_a_connection(box, front):
    assert box.run("echo out; echo err >&2; exit 3").stderr == b"err\n"
    calls = [box.client.call("abx_command_run", box.sandbox, f"sleep 0.2; echo {i}", None) for i in range(20)]
    assert [c.wait().command().stdout for c in calls] == [b"%d\n" % i for i in range(20)]
    call, pid = box.start("cat", stdin_open=1)
    box.stdin(pid, b"x" * 3_000_000)
    box.close_stdin(pid)
    assert len(collect(call)[0]["stdout"]) == 3_000_000
    assert front.streams is None or (front.streams > 20 and front.connections <= 2)


def test_files_and_much_output(box, front):
    data = os.urandom(8_000_000)
    sized = Source(data, len(data))
    ways = [{"/tmp/f": data}, {"/tmp/f": sized}, {"/tmp/f": data, "/tmp/g": data}]
    if isinstance(front, Itself):  # one without a length goes by HTTP/1.1 (http_setup.c), which the proxy does not speak
        ways.append({"/tmp/f": Source(data)})
    for way in ways:
        assert box.write(way) == list(way)
        assert box.read("/tmp/f") == data == box.read_stream("/tmp/f")
    assert len(box.run("head -c 20000000 /dev/zero").stdout) == 20_000_000


def test_a_stream_that_nobody_takes_holds_up_no_other(box):
    call, pid = box.start("head -c 30000000 /dev/zero")
    for _ in range(5):
        assert box.run("echo other").stdout == b"other\n"
    assert len(collect(call)[0]["stdout"]) == 30_000_000


def test_a_cancel_ends_its_stream_only(box, front):
    other, _ = box.start("sleep 1; echo still here")
    call, pid = box.start("sleep 300")
    call.cancel()
    assert collect(other)[0]["stdout"] == b"still here\n"
    assert box.signal(pid, 9) is True


def test_a_kill_during_a_command(box, service):
    call, _ = box.start("sleep 300", timeout_ms=0)
    assert service.kill(box.id) == 204
    with pytest.raises(Error) as e:
        collect(call)
    assert (e.value.code, e.value.reason) == ("UNAVAILABLE", "SANDBOX_GONE")
