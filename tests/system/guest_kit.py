"""What tests of the guest alone share: fixtures (a guest, and one that is not claimed) and what a call's error says.

One port per guest of a test run, from the range of the guest's tests; each process of a parallel run has its own.
"""

import itertools
import os

import pytest

from guest import Guest, RpcError

FIRST = int(os.environ.get("ABX_GUEST_PORTS", "19400")) + 100 * int(os.environ.get("PYTEST_XDIST_WORKER", "gw0")[2:])
PORTS = itertools.cycle(range(FIRST, FIRST + 100))


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


def error_of(call, *args, **kw):
    with pytest.raises(RpcError) as e:
        call(*args, **kw)
    return e.value.code, e.value.message
