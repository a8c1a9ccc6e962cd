"""How this side runs its calls and callbacks."""

from typing import TypeVar

from ..._runtime import client, drive
from ..._sync.run import wait
from ..models import OutputHandler

__all__ = ["client", "drive", "tell", "wait"]
T = TypeVar("T")


def tell(handler: OutputHandler[T] | None, piece: T) -> None:
    """Calls a callback."""
    if handler is not None:
        handler(piece)
