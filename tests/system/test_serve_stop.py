"""How long a stop of `abx serve` waits for clients: no time at all for streams out of sandboxes that it kills, and until it is asked twice.

A gateway here lets requests end for an hour, so that a stop that waits for one shows: the supervisor kills the gateway and says so.
"""

import http.client
import shutil
import signal

import pytest
from envd import Envd
from service import Service
from waiting import until

TOO_LATE = "role did not stop in time"


@pytest.fixture
def service(build_dir, base_template, tmp_path):
    libexec = tmp_path / "libexec"
    shutil.copytree(build_dir / "libexec", libexec, ignore=shutil.ignore_patterns("*.p"))
    (libexec / "abx-gateway").rename(libexec / "gateway")
    (libexec / "abx-gateway").write_text('#!/bin/sh\nexec "${0%/*}/gateway" "$@" --drain-ms 3600000\n')
    (libexec / "abx-gateway").chmod(0o755)
    with Service(build_dir, "--gateways", "2", env={"ABX_LIBEXEC_DIR": str(libexec)}) as made:
        yield made
        if made.process.poll() is not None:
            made.start()  # its stop ends what the last one kept


def open_stream(service, box):
    """One that does not end by itself and has begun."""
    stream = Envd(service, box).stream("process.Process/Start", {"process": {"cmd": "/bin/sleep", "args": ["3600"]}, "stdin": False})
    assert "start" in next(stream)["event"]
    return stream


def expect_cut(stream):
    with pytest.raises((OSError, http.client.HTTPException)):
        while "keepalive" in next(stream)["event"]:
            pass


def test_streams_of_sandboxes_that_are_killed_are_not_waited_for(service):
    streams = [open_stream(service, service.create(timeout=600)) for _ in range(4)]
    service.stop(signal.SIGINT)
    assert service.process.returncode == 0
    assert TOO_LATE not in service.logged()
    for stream in streams:
        expect_cut(stream)
    service.start()
    assert service.request("GET", "/v2/sandboxes")[2] == []


def test_who_is_asked_twice_ends_at_once_and_keeps_what_it_was_to_keep(service):
    box = service.create(timeout=600)
    stream = open_stream(service, box)
    service.process.send_signal(signal.SIGTERM)
    until(lambda: 'msg="stopping" sandboxes="keep"' in service.logged(), "a service that stops")
    # Ctrl-C by one who lost patience; those that come too fast are one.
    until(lambda: service.process.poll() is not None or service.process.send_signal(signal.SIGINT), "its end", step=0.2)
    service.stop()
    assert service.process.returncode == 0
    assert TOO_LATE not in service.logged()
    expect_cut(stream)
    service.start()
    assert service.request("GET", f"/sandboxes/{box['sandboxID']}")[2]["state"] == "running"
