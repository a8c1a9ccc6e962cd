"""Sandboxes that run code: `Sandbox` and `AsyncSandbox` with `run_code`, beside every name of `agent_sandbox`.

Names are loaded when they are first used.
"""

TYPE_CHECKING = False
if TYPE_CHECKING:
    from .. import *  # noqa: F403
    from . import charts as charts
    from ._async.sandbox import AsyncSandbox as AsyncSandbox
    from ._sync.sandbox import Sandbox as Sandbox
    from .models import (
        Context as Context,
        Execution as Execution,
        ExecutionError as ExecutionError,
        Logs as Logs,
        MIMEType as MIMEType,
        OutputHandler as OutputHandler,
        OutputMessage as OutputMessage,
        Result as Result,
        RunCodeLanguage as RunCodeLanguage,
    )

_HOME = {
    "AsyncSandbox": "_async.sandbox",
    "Sandbox": "_sync.sandbox",
    **dict.fromkeys(
        ("Context", "Execution", "ExecutionError", "Logs", "MIMEType", "OutputHandler", "OutputMessage", "Result",
         "RunCodeLanguage"),
        "models",
    ),
}  # fmt: skip


def _names() -> list[str]:
    from .. import __all__ as names

    return sorted({*_HOME, "charts", *(name for name in names if name != "__version__")})


def __getattr__(name: str) -> object:
    if name == "__all__":
        return _names()
    home = _HOME.get(name)
    if home is not None:
        value = getattr(__import__(home, globals(), None, [name], 1), name)
    elif name in ("charts", "models"):
        return __import__(name, globals(), None, ["__name__"], 1)
    elif not name.startswith("_"):
        from .. import __getattr__ as parent

        value = parent(name)
    else:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_names()})
