"""How this side runs its calls; the async side has its own file of this name."""

from time import sleep

from .._dual import sync_connect_form as connect_form
from .._native import Call
from .._runtime import client, drive

__all__ = ["client", "connect_form", "drive", "sleep", "wait"]


def wait(call: Call) -> None:
    """Returns when something happened to the call: it is done, has events, or wants data."""
    call.wait(None)
