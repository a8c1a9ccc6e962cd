"""abx-guest alone: envd's API over loopback, without engine and gateway."""

import json

import pytest

from guest import Guest

PORTS = iter(range(19410, 19500))


@pytest.fixture
def fresh(build_dir, tmp_path):
    """A guest that nobody has claimed."""
    guest = Guest(build_dir, tmp_path, next(PORTS))
    yield guest
    guest.stop()


@pytest.fixture
def guest(fresh):
    fresh.claim()
    return fresh


def test_unclaimed_guest_answers_health_only(fresh):
    assert fresh.http("GET", "/health", token=False)[0] == 204
    for target in ("/envs", "/metrics", "/files?path=/etc/hostname", "/nothing"):
        assert fresh.http("GET", target)[0] == 503
    assert fresh.http("POST", "/process.Process/List", "{}", {"Content-Type": "application/json"})[0] == 503


def test_no_request_after_the_claim_is_refused(fresh):
    fresh.claim(envs={"COLOUR": "blue"})
    status, _, body = fresh.http("GET", "/envs")
    assert (status, json.loads(body)) == (200, {"COLOUR": "blue"})


def test_echo(guest):
    result = guest.run("echo", "hello")
    assert result["stdout"] == b"hello\n"
    assert result["end"] == {"exited": True, "status": "exit status 0"}


def test_file_goes_up_and_comes_down(guest):
    data = bytes(range(256)) * 40
    status, _, body = guest.http("POST", "/files?path=a/b/c.bin", data, {"Content-Type": "application/octet-stream"})
    assert (status, json.loads(body)) == (200, [{"path": "/home/user/a/b/c.bin", "name": "c.bin", "type": "file"}])
    assert guest.http("GET", "/files?path=/home/user/a/b/c.bin")[2] == data
    entry = guest.rpc("Stat", {"path": "a/b/c.bin"})["entry"]
    assert (entry["type"], entry["size"], entry["owner"]) == ("FILE_TYPE_FILE", str(len(data)), "user")
