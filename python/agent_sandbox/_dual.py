"""Methods that can be called on an object, for it, and on its class, with an id first."""

from __future__ import annotations

from collections.abc import Callable
from types import MethodType
from typing import TYPE_CHECKING, Any, Concatenate, Generic, ParamSpec, TypeVar, overload

P = ParamSpec("P")
Q = ParamSpec("Q")
R = TypeVar("R")
S = TypeVar("S")


class dual(Generic[P, R, Q, S]):  # noqa: N801
    """`object.name(...)` calls `bound` with the object, `Class.name(...)` calls `unbound` with the class."""

    def __init__(self, bound: Callable[Concatenate[Any, P], R], unbound: Callable[Concatenate[Any, Q], S]) -> None:
        self._bound: Any = bound
        self._unbound: Any = unbound.__func__ if isinstance(unbound, classmethod) else unbound
        self.__doc__ = bound.__doc__

    def __set_name__(self, owner: type, name: str) -> None:
        """For help(): both forms have the public name, and the form of the class has a docstring too."""
        if not self._unbound.__doc__:
            self._unbound.__doc__ = f"{self.__doc__}\n\nOn the class the id comes first."
        for form in (self._bound, self._unbound):
            if form.__name__.startswith("_"):  # a second public name does not count
                form.__name__ = name
                form.__qualname__ = f"{owner.__qualname__}.{name}"

    @overload
    def __get__(self, obj: None, owner: type) -> Callable[Q, S]: ...

    @overload
    def __get__(self, obj: object, owner: type) -> Callable[P, R]: ...

    def __get__(self, obj: object | None, owner: type) -> Any:
        return MethodType(self._unbound, owner) if obj is None else MethodType(self._bound, obj)


if TYPE_CHECKING:
    import logging
    from collections.abc import Coroutine
    from typing import Protocol

    from typing_extensions import Unpack

    from ._config import ApiParams

    T = TypeVar("T")
    T_co = TypeVar("T_co", covariant=True)

    class _Again(Protocol[T_co]):
        def __call__(self, timeout: int | None = None, **opts: Unpack[ApiParams]) -> T_co: ...

    class _ById(Protocol[T_co]):
        def __call__(
            self,
            sandbox_id: str,
            timeout: int | None = None,
            logger: logging.Logger | None = None,
            **opts: Unpack[ApiParams],
        ) -> T_co: ...

    class async_connect_form:  # noqa: N801
        """`dual` for `connect`, whose result is of the class that it is called on."""

        def __init__(self, bound: Any, unbound: Any) -> None: ...
        @overload
        def __get__(self, obj: None, owner: type[T]) -> _ById[Coroutine[Any, Any, T]]: ...
        @overload
        def __get__(self, obj: T, owner: type[T]) -> _Again[Coroutine[Any, Any, T]]: ...
        def __get__(self, obj: Any, owner: Any) -> Any: ...

    class sync_connect_form:  # noqa: N801
        """`dual` for `connect`, whose result is of the class that it is called on."""

        def __init__(self, bound: Any, unbound: Any) -> None: ...
        @overload
        def __get__(self, obj: None, owner: type[T]) -> _ById[T]: ...
        @overload
        def __get__(self, obj: T, owner: type[T]) -> _Again[T]: ...
        def __get__(self, obj: Any, owner: Any) -> Any: ...

else:
    async_connect_form = sync_connect_form = dual
