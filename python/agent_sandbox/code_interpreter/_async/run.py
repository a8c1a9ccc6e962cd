"""How this side runs its calls and callbacks."""

import inspect
from typing import TypeVar

from ..._loops import client, drive, wait
from ..models import OutputHandler

__all__ = ["client", "drive", "tell", "wait"]
T = TypeVar("T")


async def tell(handler: OutputHandler[T] | None, piece: T) -> None:
    """Calls a callback, and waits for an async one."""
    if handler is not None:
        told = handler(piece)
        if inspect.isawaitable(told):
            await told
