"""How this side runs its calls; the sync side has its own file of this name."""

from asyncio import sleep

from .._dual import async_connect_form as connect_form
from .._loops import client, drive, wait

__all__ = ["client", "connect_form", "drive", "sleep", "wait"]
