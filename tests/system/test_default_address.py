"""A key alone goes to the default address, which is in the internet: what a client says when it is not reached or refuses it.

Nothing of the internet is asked: what is dialled is a proxy here, or nothing in a network namespace of its own.
"""

import asyncio
import sys

import pytest
from cli_kit import Cli
from http_fakes import Loop, Peer, answering, make_certificates, reply, server_tls
from test_python_program import clean_env

DEFAULT = "api.cn-hangzhou.e2b.fc.aliyuncs.com"
HINT = ("no address is set, this is the default one: set ABX_SANDBOX_BASE_URL (or E2B_API_URL), to http://127.0.0.1:8490 for 'abx serve' on "
        "this machine, or unset the key (environment E2B_API_KEY), and it is found by itself")
PROGRAM = "from agent_sandbox import Sandbox\nSandbox.list().next_items()\n"


@pytest.fixture(scope="module")
def certificates(tmp_path_factory):
    return make_certificates(tmp_path_factory.mktemp("tls"), DEFAULT)


@pytest.fixture
def network(certificates):
    """A proxy that takes whatever is asked of it to one TLS server that refuses all keys: (its URL, both)."""
    loop = Loop()
    body = b'{"code": 401, "message": "invalid API key"}'
    server = Peer(loop, answering(reply(body, "401 Unauthorized", ["Content-Type: application/json"])), tls=server_tls(certificates, DEFAULT))

    async def relay(request, reader, writer):
        back, there = await asyncio.open_connection("127.0.0.1", server.port)
        writer.write(b"HTTP/1.1 200 OK\r\n\r\n")

        async def move(source, to):
            while data := await source.read(65536):
                to.write(data)
                await to.drain()
            to.close()

        await asyncio.gather(move(reader, there), move(back, writer))
        return False

    proxy = Peer(loop, relay, reads_body=False)
    yield proxy, server
    proxy.stop()
    server.stop()
    loop.stop()


def messages(build_dir, python_dir, tmp_path, *before, **env):
    """What the command and a program say, with a key in the environment and no service on this machine."""
    env = {"E2B_API_KEY": "e2b_00", "ABX_LOCAL_DIR": str(tmp_path / "none"), "ABX_CONNECTION_RETRIES": "0", **env}
    cli = Cli(build_dir, tmp_path, env)
    run = [*before, cli.abx, "ls"]
    cli.abx = run.pop(0)
    command = cli.run(*run)
    cli = Cli(build_dir, tmp_path, clean_env(tmp_path, python_dir, **env))
    run = [*before, sys.executable, "-c", PROGRAM]
    cli.abx = run.pop(0)
    return command[2].decode(), cli.run(*run, status=1)[2].decode()


def test_nothing_answers(build_dir, python_dir, tmp_path):
    for text in messages(build_dir, python_dir, tmp_path, "unshare", "-n"):
        assert DEFAULT in text and "name resolution" in text and text.count(HINT) == 1, text


def test_no_answer_in_time(build_dir, python_dir, tmp_path):
    async def wait(request, reader, writer):
        return bool(await reader.read())

    loop = Loop()
    silent = Peer(loop, wait, reads_body=False)
    for text in messages(build_dir, python_dir, tmp_path, ABX_PROXY=silent.url, ABX_HTTP_TIMEOUT="1"):
        assert "not done within 1000 ms" in text and text.count(HINT) == 1, text
    silent.stop()
    loop.stop()


def test_the_key_is_refused(build_dir, python_dir, tmp_path, certificates, network):
    proxy, server = network
    names = {"ABX_PROXY": proxy.url, "SSL_CERT_FILE": str(certificates / "ca.pem")}
    for text in messages(build_dir, python_dir, tmp_path, **names):
        assert "invalid API key" in text and text.count(HINT) == 1, text
    assert len(server.requests) == 2
    # Whoever set an address knows it.
    for text in messages(build_dir, python_dir, tmp_path, **names, E2B_API_URL="https://" + DEFAULT):
        assert "invalid API key" in text and "no address is set" not in text, text
