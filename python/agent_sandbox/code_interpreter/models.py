"""What running code brings."""

from __future__ import annotations

import json as _json
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, field, fields
from typing import Any, Literal, TypeVar

from .charts import Chart, chart_of

T = TypeVar("T")
OutputHandler = Callable[[T], Any] | Callable[[T], Awaitable[Any]]
"""Function, plain or (on the async side) async, that is called with each piece."""

RunCodeLanguage = Literal["python", "javascript", "typescript", "r", "java", "bash"] | str
"""Language of code."""


class MIMEType(str):
    """A kind of content, such as "text/html"."""


@dataclass
class OutputMessage:
    """A piece of output; `timestamp` in nanoseconds since the epoch; `error`: from standard error."""

    line: str
    timestamp: int
    error: bool = False

    def __str__(self) -> str:
        return self.line


@dataclass
class ExecutionError:
    """An exception of the code."""

    name: str
    value: str
    traceback: str

    def __init__(self, name: str, value: str, traceback: str, **_: Any) -> None:
        self.name = name
        self.value = value
        self.traceback = traceback

    def to_json(self) -> str:
        """As JSON."""
        return _json.dumps({"name": self.name, "value": self.value, "traceback": self.traceback})


@dataclass(init=False, repr=False)
class Result:
    """What code displayed, in one or several formats; `is_main_result` marks the value of its last expression."""

    text: str | None = None
    html: str | None = None
    markdown: str | None = None
    svg: str | None = None
    png: str | None = None
    jpeg: str | None = None
    pdf: str | None = None
    latex: str | None = None
    json: dict[str, Any] | None = None
    javascript: str | None = None
    data: dict[str, Any] | None = None
    chart: Chart | None = None
    is_main_result: bool = False
    extra: dict[str, Any] | None = None

    def __init__(
        self,
        text: str | None = None,
        html: str | None = None,
        markdown: str | None = None,
        svg: str | None = None,
        png: str | None = None,
        jpeg: str | None = None,
        pdf: str | None = None,
        latex: str | None = None,
        json: dict[str, Any] | None = None,
        javascript: str | None = None,
        data: dict[str, Any] | None = None,
        chart: dict[str, Any] | None = None,
        is_main_result: bool = False,
        extra: dict[str, Any] | None = None,
        **_: Any,
    ) -> None:
        self.text = text
        self.html = html
        self.markdown = markdown
        self.svg = svg
        self.png = png
        self.jpeg = jpeg
        self.pdf = pdf
        self.latex = latex
        self.json = json
        self.javascript = javascript
        self.data = data
        self.chart = chart_of(chart) if chart else None
        self.is_main_result = is_main_result
        self.extra = extra

    def formats(self) -> Iterable[str]:
        """The formats that are there."""
        names = [f.name for f in fields(self) if f.name not in ("is_main_result", "extra")]
        return [name for name in names if getattr(self, name)] + list(self.extra or ())

    def __getitem__(self, item: str) -> Any:
        return getattr(self, item)

    def __str__(self) -> str:
        return self.__repr__()

    def __repr__(self) -> str:
        return f"Result({self.text})" if self.text else f"Result(formats: {', '.join(self.formats())})"

    def _repr_html_(self) -> str | None:
        return self.html

    def _repr_markdown_(self) -> str | None:
        return self.markdown

    def _repr_svg_(self) -> str | None:
        return self.svg

    def _repr_png_(self) -> str | None:
        return self.png

    def _repr_jpeg_(self) -> str | None:
        return self.jpeg

    def _repr_pdf_(self) -> str | None:
        return self.pdf

    def _repr_latex_(self) -> str | None:
        return self.latex

    def _repr_json_(self) -> dict[str, Any] | None:
        return self.json

    def _repr_javascript_(self) -> str | None:
        return self.javascript


@dataclass
class Logs:
    """What code wrote, piece by piece."""

    stdout: list[str] = field(default_factory=list)
    stderr: list[str] = field(default_factory=list)

    def __init__(self, stdout: list[str] | None = None, stderr: list[str] | None = None, **_: Any) -> None:
        self.stdout = [] if stdout is None else stdout
        self.stderr = [] if stderr is None else stderr

    def to_json(self) -> str:
        """As JSON."""
        return _json.dumps({"stdout": self.stdout, "stderr": self.stderr})


@dataclass
class Execution:
    """What running code brought: results, output, and the exception that ended it."""

    results: list[Result] = field(default_factory=list)
    logs: Logs = field(default_factory=Logs)
    error: ExecutionError | None = None
    execution_count: int | None = None

    def __init__(
        self,
        results: list[Result] | None = None,
        logs: Logs | None = None,
        error: ExecutionError | None = None,
        execution_count: int | None = None,
        **_: Any,
    ) -> None:
        self.results = [] if results is None else results
        self.logs = Logs() if logs is None else logs
        self.error = error
        self.execution_count = execution_count

    @property
    def text(self) -> str | None:
        """Text of the main result."""
        return next((result.text for result in self.results if result.is_main_result), None)

    def to_json(self) -> str:
        """As JSON."""
        return _json.dumps(
            {
                "results": [_plain(result) for result in self.results],
                "logs": {"stdout": self.logs.stdout, "stderr": self.logs.stderr},
                "error": self.error
                and {"name": self.error.name, "value": self.error.value, "traceback": self.error.traceback},
            }
        )


def _plain(result: Result) -> dict[str, Any]:
    found = {name: result[name] for name in result.formats() if name != "chart" and hasattr(result, name)}
    if result.chart is not None:
        found["chart"] = result.chart.to_dict()
    return {**found, **(result.extra or {})}


@dataclass
class Context:
    """Where code runs: its variables live in it."""

    id: str
    language: str
    cwd: str

    def __init__(self, context_id: str, language: str, cwd: str, **_: Any) -> None:
        self.id = context_id
        self.language = language
        self.cwd = cwd

    @classmethod
    def from_json(cls, data: dict[str, str]) -> Context:
        """From the sandbox's JSON object."""
        return cls(context_id=data["id"], language=data["language"], cwd=data["cwd"])


_RESULT = {f.name for f in fields(Result)}


def take(execution: Execution, line: bytes) -> tuple[str, Any] | None:
    """Adds one line of the sandbox's answer; returns its kind and what a callback is called with."""
    told = _json.loads(line)
    kind = told.pop("type", None)
    if kind in ("stdout", "stderr"):
        (execution.logs.stdout if kind == "stdout" else execution.logs.stderr).append(told["text"])
        return kind, OutputMessage(told["text"], told.get("timestamp") or 0, kind == "stderr")
    if kind == "result":
        more = {key: told.pop(key) for key in list(told) if key not in _RESULT}
        result = Result(**{**told, "extra": {**(told.get("extra") or {}), **more} or None})
        execution.results.append(result)
        return kind, result
    if kind == "error":
        execution.error = ExecutionError(**told)
        return kind, execution.error
    if kind == "number_of_executions":
        execution.execution_count = told["execution_count"]
    return None
