"""Says which argument of which method is none, where methods hand their keyword arguments on."""

from __future__ import annotations

import sys
from collections.abc import Collection, Iterator, Mapping
from difflib import get_close_matches
from types import CodeType, FrameType
from typing import Any

_PACKAGE = __name__.partition(".")[0]


def parameters_of(function: Any) -> tuple[str, ...]:
    """Names of the arguments that can be given by name; of a method without the first."""
    return _names(function.__code__)[1:]


def _names(code: CodeType) -> tuple[str, ...]:
    return code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]


def _is_ours(frame: FrameType) -> bool:
    return f"{frame.f_globals.get('__name__')}.".startswith(_PACKAGE + ".")


def _codes_of(attribute: Any) -> Iterator[CodeType]:
    """Those of a method in any of its forms."""
    for name in ("__func__", "_bound", "_unbound"):
        if (inner := getattr(attribute, name, None)) is not None:
            yield from _codes_of(inner)
    if isinstance(code := getattr(attribute, "__code__", None), CodeType):
        yield code


def _public_name(frame: FrameType) -> str:
    """What the caller wrote: "Sandbox.create"."""
    for cls in frame.f_globals.values():
        if isinstance(cls, type) and cls.__module__ == frame.f_globals.get("__name__"):
            for name, attribute in vars(cls).items():
                if frame.f_code in _codes_of(attribute) and (name == "__init__" or not name.startswith("_")):
                    return cls.__name__ if name == "__init__" else f"{cls.__name__}.{name}"
    return frame.f_code.co_name


def check_options(opts: Mapping[str, Any], known: Collection[str]) -> None:
    """Raises the TypeError that Python has for an unknown argument, about the method that was called from outside.

    It looks at the frames of its callers for that, only in this case.
    """
    for name in opts:
        if name in known:
            continue
        frame = sys._getframe(1)
        while frame.f_back and _is_ours(frame.f_back):
            frame = frame.f_back
        near = get_close_matches(name, [*_names(frame.f_code), *known], 1)
        hint = f". Did you mean '{near[0]}'?" if near else ""
        raise TypeError(f"{_public_name(frame)}() got an unexpected keyword argument '{name}'{hint}")
