"""Templates: what a sandbox begins with, step by step. The plain data of both sides."""

from __future__ import annotations

import json
import os
import re
import shlex
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime
from enum import Enum
from pathlib import Path
from typing import Any, Literal, TypedDict

from ._ready import ReadyCmd
from .exceptions import BuildException, InvalidArgumentException, TemplateException

LogEntryLevel = Literal["debug", "info", "warn", "error"]
_LEVELS = ("debug", "info", "warn", "error")
_ANSI = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[@-Z\\-_])")


class TemplateBuildStatus(str, Enum):
    """How far a build is."""

    BUILDING = "building"
    WAITING = "waiting"
    READY = "ready"
    ERROR = "error"

    def __str__(self) -> str:
        return self.value


@dataclass
class LogEntry:
    """A line of a build's log, without colours."""

    timestamp: datetime
    level: LogEntryLevel
    message: str

    def __post_init__(self) -> None:
        self.message = _ANSI.sub("", self.message)

    def __str__(self) -> str:
        return f"[{self.timestamp.isoformat()}] [{self.level}] {self.message}"


@dataclass
class LogEntryStart(LogEntry):
    """The build begins."""

    level: LogEntryLevel = field(default="debug", init=False)


@dataclass
class LogEntryEnd(LogEntry):
    """The build has ended."""

    level: LogEntryLevel = field(default="debug", init=False)


@dataclass
class BuildInfo:
    """A build, done or on its way."""

    template_id: str
    build_id: str
    name: str
    alias: str
    tags: list[str] = field(default_factory=list)


@dataclass
class BuildStatusReason:
    """Why a build failed: in which step, and what that step wrote."""

    message: str
    step: str | None = None
    log_entries: list[LogEntry] = field(default_factory=list)


@dataclass
class TemplateBuildStatusResponse:
    """State of a build, with the lines of its log from the offset on that was asked for."""

    build_id: str
    template_id: str
    status: TemplateBuildStatus
    log_entries: list[LogEntry]
    logs: list[str]
    reason: BuildStatusReason | None = None


@dataclass
class TemplateTag:
    """A tag, and the build it stands for."""

    tag: str
    build_id: str
    created_at: datetime


@dataclass
class TemplateTagInfo:
    """A build and its tags."""

    build_id: str
    tags: list[str]


class _CopyNeeds(TypedDict):
    src: str | Path | list[str | Path]
    dest: str | Path


class CopyItem(_CopyNeeds, total=False):
    """Something to copy; see `TemplateBuilder.copy`."""

    forceUpload: Literal[True] | None
    user: str | None
    mode: int | None
    resolveSymlinks: bool | None
    gzip: bool | None


def default_build_logger(min_level: LogEntryLevel | None = None) -> Callable[[LogEntry], None]:
    """A function for `on_build_logs` that prints lines of `min_level` (default "info") and above to standard output."""
    least = _LEVELS.index(min_level or "info")

    def log(entry: LogEntry) -> None:
        if isinstance(entry, (LogEntryStart, LogEntryEnd)) or _LEVELS.index(entry.level) >= least:
            print(f"{entry.timestamp:%H:%M:%S} {entry.level.upper():5} {entry.message}", file=sys.stdout, flush=True)

    return log


def time_of(text: str) -> datetime:
    """A time (RFC 3339) that the service told."""
    text = text.replace("Z", "+00:00")
    head, dot, tail = text.partition(".")
    if dot:  # fromisoformat of 3.10 takes 3 or 6 digits only
        digits = len(tail) - len(tail.lstrip("0123456789"))
        text = f"{head}.{tail[:digits][:6].ljust(6, '0')}{tail[digits:]}"
    return datetime.fromisoformat(text)


def entries_of(told: Any) -> list[LogEntry]:
    """Lines of a log."""
    return [LogEntry(time_of(o["timestamp"]), o["level"], o["message"]) for o in told or ()]


def status_of(told: dict[str, Any]) -> TemplateBuildStatusResponse:
    """State of a build."""
    reason = told.get("reason")
    return TemplateBuildStatusResponse(
        build_id=told["buildID"],
        template_id=told["templateID"],
        status=TemplateBuildStatus(told["status"]),
        log_entries=entries_of(told.get("logEntries")),
        logs=told.get("logs") or [],
        reason=reason and BuildStatusReason(reason["message"], reason.get("step"), entries_of(reason.get("logEntries"))),
    )


# ---- the builder ----


class TemplateBase:
    """The beginning of a template: choose what it is made from.

    `file_context_path` is the folder that `copy` takes from (default: that of the calling file), `file_ignore_patterns` are
    left out, beside those of its .dockerignore.
    """

    def __init__(self, file_context_path: str | Path | None = None, file_ignore_patterns: list[str] | None = None) -> None:
        if file_context_path is None:
            file = sys._getframe(1).f_code.co_filename
            file_context_path = os.path.dirname(file) if os.path.exists(file) else os.getcwd()
        self._context = str(file_context_path)
        self._ignore = list(file_ignore_patterns or [])
        self._image: str | None = None
        self._template: str | None = None
        self._registry: dict[str, str] | None = None
        self._steps: list[dict[str, Any]] = []
        self._start: str | None = None
        self._ready: str | None = None
        self._force = False
        self._force_next = False

    def skip_cache(self) -> TemplateBase:
        """Builds everything anew."""
        self._force_next = True
        return self

    def _from(
        self, image: str | None, template: str | None = None, registry: dict[str, str] | None = None
    ) -> TemplateBuilder:
        self._image, self._template, self._registry = image, template, registry
        self._force = self._force_next
        return TemplateBuilder(self)

    def from_image(self, image: str, username: str | None = None, password: str | None = None) -> TemplateBuilder:
        """From an image of a registry, with credentials if it needs them."""
        if bool(username) != bool(password):
            raise InvalidArgumentException("username and password are needed together")
        registry = {"type": "registry", "username": username, "password": password} if username and password else None
        return self._from(image, registry=registry)

    def from_base_image(self) -> TemplateBuilder:
        """From the base image."""
        return self._from("e2bdev/base")

    def from_debian_image(self, variant: str = "stable") -> TemplateBuilder:
        """From Debian."""
        return self._from(f"debian:{variant}")

    def from_ubuntu_image(self, variant: str = "latest") -> TemplateBuilder:
        """From Ubuntu."""
        return self._from(f"ubuntu:{variant}")

    def from_python_image(self, version: str = "3") -> TemplateBuilder:
        """From an image with Python."""
        return self._from(f"python:{version}")

    def from_node_image(self, variant: str = "lts") -> TemplateBuilder:
        """From an image with Node."""
        return self._from(f"node:{variant}")

    def from_bun_image(self, variant: str = "latest") -> TemplateBuilder:
        """From an image with Bun."""
        return self._from(f"oven/bun:{variant}")

    def from_template(self, template: str) -> TemplateBuilder:
        """From another template."""
        return self._from(None, template=template)

    def from_aws_registry(self, image: str, access_key_id: str, secret_access_key: str, region: str) -> TemplateBuilder:
        """From an image of an AWS registry."""
        return self._from(
            image,
            registry={
                "type": "aws", "awsAccessKeyId": access_key_id, "awsSecretAccessKey": secret_access_key, "awsRegion": region,
            },
        )  # fmt: skip

    def from_gcp_registry(self, image: str, service_account_json: str | dict[str, Any]) -> TemplateBuilder:
        """From an image of a Google registry; the account as a dict, or the path of its file."""
        if isinstance(service_account_json, dict):
            account = json.dumps(service_account_json)
        else:
            account = Path(self._context, service_account_json).read_text(encoding="utf-8")
        return self._from(image, registry={"type": "gcp", "serviceAccountJson": account})

    def from_dockerfile(self, dockerfile_content_or_path: str) -> TemplateBuilder:
        """From a Dockerfile (its text, or its path) with one stage."""
        from ._dockerfile import read

        return read(self, dockerfile_content_or_path)

    @staticmethod
    def to_json(template: TemplateClass) -> str:
        """What is sent to the service to build it."""
        return json.dumps(template._base._build_start(), indent=2)

    @staticmethod
    def to_dockerfile(template: TemplateClass) -> str:
        """The same as a Dockerfile. Raises ValueError for one that is made from another template."""
        base = template._base
        if base._image is None:
            raise ValueError("a template that is made from another template has no Dockerfile")
        lines = [f"FROM {base._image}"]
        for step in base._steps:
            kind, args = step["type"], step["args"]
            if kind == "RUN":
                lines.append(f"RUN {args[0]}")
            elif kind == "COPY":
                lines.append(f"COPY {args[0]} {args[1]}")
            elif kind == "ENV":
                pairs = zip(args[::2], args[1::2], strict=True)
                lines.append("ENV " + " ".join(f"{key}={value}" for key, value in pairs))
            else:
                lines.append(f"{kind} {args[0]}")
        if base._start:
            lines.append(f"ENTRYPOINT {base._start}")
        return "\n".join(lines) + "\n"

    def _build_start(self) -> dict[str, Any]:
        found: dict[str, Any] = {"steps": [_wire(step) for step in self._steps], "force": self._force}
        for key, value in (
            ("fromImage", self._image), ("fromTemplate", self._template), ("fromImageRegistry", self._registry),
            ("startCmd", self._start), ("readyCmd", self._ready),
        ):  # fmt: skip
            if value is not None:
                found[key] = value
        return found

    def _step(self, kind: str, args: list[str], **more: Any) -> None:
        step = {"type": kind, "args": args, "force": self._force_next, **more}
        self._steps.append(step)


def _wire(step: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in step.items() if value is not None and not key.startswith("_")}


class TemplateFinal:
    """A template that is ready to be built."""

    def __init__(self, template: TemplateBase) -> None:
        self._base = template


def _list_of(value: Any) -> list[str]:
    return [str(v) for v in value] if isinstance(value, (list, tuple)) else [str(value)]


def _quoted(words: list[str]) -> str:
    return " ".join(shlex.quote(word) for word in words)


class TemplateBuilder:
    """A template in the making: each method adds a step. Steps run as the user set last (`user` for one step)."""

    def __init__(self, template: TemplateBase) -> None:
        self._base = template

    def _run(self, words: list[str], user: str | None = None) -> TemplateBuilder:
        return self.run_cmd(" ".join(words), user)

    def copy(
        self,
        src: str | Path | list[str | Path],
        dest: str | Path,
        force_upload: Literal[True] | None = None,
        user: str | None = None,
        mode: int | None = None,
        resolve_symlinks: bool | None = None,
        gzip: bool | None = None,
    ) -> TemplateBuilder:
        """Copies files of the context folder. Raises TemplateException for what is outside of it."""
        for source in _list_of(src):
            normal = os.path.normpath(source)
            if os.path.isabs(source) or normal == ".." or normal.startswith("../"):
                raise TemplateException(f"copy: {source} is not in the context folder: give a relative path inside of it")
            self._base._step(
                "COPY", [source, str(dest), user or "", "" if mode is None else f"{mode:04o}"],
                forceUpload=force_upload, _resolve=bool(resolve_symlinks), _gzip=gzip is not False,
            )  # fmt: skip
        return self

    def copy_items(self, items: list[CopyItem]) -> TemplateBuilder:
        """Copies several; see `copy`."""
        for item in items:
            self.copy(
                item["src"], item["dest"], item.get("forceUpload"), item.get("user"), item.get("mode"),
                item.get("resolveSymlinks"), item.get("gzip"),
            )  # fmt: skip
        return self

    def remove(
        self,
        path: str | Path | list[str | Path],
        force: bool = False,
        recursive: bool = False,
        user: str | None = None,
    ) -> TemplateBuilder:
        """Removes files."""
        flags = (["-r"] if recursive else []) + (["-f"] if force else [])
        return self._run(["rm", *flags, _quoted(_list_of(path))], user)

    def rename(self, src: str | Path, dest: str | Path, force: bool = False, user: str | None = None) -> TemplateBuilder:
        """Moves a file."""
        return self._run(["mv", _quoted([str(src), str(dest)]), *(["-f"] if force else [])], user)

    def make_dir(
        self, path: str | Path | list[str | Path], mode: int | None = None, user: str | None = None
    ) -> TemplateBuilder:
        """Makes folders."""
        flags = [] if mode is None else ["-m", f"{mode:04o}"]
        return self._run(["mkdir", "-p", *flags, _quoted(_list_of(path))], user)

    def make_symlink(
        self, src: str | Path, dest: str | Path, user: str | None = None, force: bool = False
    ) -> TemplateBuilder:
        """Makes a link `dest` to `src`."""
        return self._run(["ln", "-s", *(["-f"] if force else []), _quoted([str(src), str(dest)])], user)

    def run_cmd(self, command: str | list[str], user: str | None = None) -> TemplateBuilder:
        """Runs a shell command, or several, each if the one before succeeded."""
        text = command if isinstance(command, str) else " && ".join(command)
        self._base._step("RUN", [text, user] if user else [text])
        return self

    def set_workdir(self, workdir: str | Path) -> TemplateBuilder:
        """The folder of what follows, and of commands in sandboxes."""
        self._base._step("WORKDIR", [str(workdir)])
        return self

    def set_user(self, user: str) -> TemplateBuilder:
        """The user of what follows, and of commands in sandboxes."""
        self._base._step("USER", [user])
        return self

    def set_envs(self, envs: dict[str, str]) -> TemplateBuilder:
        """Environment of the steps that follow."""
        if envs:
            self._base._step("ENV", [word for pair in envs.items() for word in pair])
        return self

    def pip_install(self, packages: str | list[str] | None = None, g: bool = True) -> TemplateBuilder:
        """Installs Python packages (none: the folder's project), for all users or, not `g`, for one."""
        flags = [] if g else ["--user"]
        return self._run(["pip", "install", *flags, _packages(packages)], "root" if g else None)

    def npm_install(
        self, packages: str | list[str] | None = None, g: bool | None = False, dev: bool | None = False
    ) -> TemplateBuilder:
        """Installs npm packages (none: the folder's), globally with `g`."""
        flags = (["-g"] if g else []) + (["--save-dev"] if dev else [])
        return self._run(["npm", "install", *flags, *_some(packages)], "root" if g else None)

    def bun_install(
        self, packages: str | list[str] | None = None, g: bool | None = False, dev: bool | None = False
    ) -> TemplateBuilder:
        """Installs packages with Bun (none: the folder's), globally with `g`."""
        flags = (["-g"] if g else []) + (["--dev"] if dev else [])
        return self._run(["bun", "install", *flags, *_some(packages)], "root" if g else None)

    def apt_install(
        self, packages: str | list[str], no_install_recommends: bool = False, fix_missing: bool = False
    ) -> TemplateBuilder:
        """Installs Debian packages."""
        flags = (["--no-install-recommends"] if no_install_recommends else []) + (["--fix-missing"] if fix_missing else [])
        install = " ".join(
            [
                "DEBIAN_FRONTEND=noninteractive",
                "DEBCONF_NOWARNINGS=yes",
                "apt-get",
                "install",
                "-y",
                *flags,
                _quoted(_list_of(packages)),
            ]
        )
        return self.run_cmd(["apt-get update", install], "root")

    def add_mcp_server(self, servers: str | list[str]) -> TemplateBuilder:
        """Fetches MCP servers; only for templates that are made from "mcp-gateway"."""
        if self._base._template != "mcp-gateway":
            raise BuildException('add_mcp_server needs from_template("mcp-gateway")')
        return self._run(["mcp-gateway", "pull", _quoted(_list_of(servers))], "root")

    def git_clone(
        self,
        url: str,
        path: str | Path | None = None,
        branch: str | None = None,
        depth: int | None = None,
        user: str | None = None,
    ) -> TemplateBuilder:
        """Clones a repository."""
        words = ["git", "clone", shlex.quote(url)]
        if branch:
            words += ["--branch", shlex.quote(branch), "--single-branch"]
        if depth:
            words += ["--depth", str(depth)]
        return self._run([*words, *([shlex.quote(str(path))] if path else [])], user)

    def beta_dev_container_prebuild(self, devcontainer_directory: str | Path) -> TemplateBuilder:
        """Builds a dev container ahead; only for templates that are made from "devcontainer"."""
        self._need_devcontainer("beta_dev_container_prebuild")
        return self._run(["devcontainer", "build", "--workspace-folder", shlex.quote(str(devcontainer_directory))], "root")

    def beta_set_dev_container_start(self, devcontainer_directory: str | Path) -> TemplateFinal:
        """Starts a dev container with the sandbox; only for templates that are made from "devcontainer"."""
        self._need_devcontainer("beta_set_dev_container_start")
        folder = shlex.quote(str(devcontainer_directory))
        start = (
            f"sudo devcontainer up --workspace-folder {folder} && sudo /prepare-exec.sh {folder} | sudo tee /devcontainer.sh"
        )
        return self.set_start_cmd(f"{start} > /dev/null && sudo touch /devcontainer.up", ReadyCmd("[ -f /devcontainer.up ]"))

    def _need_devcontainer(self, what: str) -> None:
        if self._base._template != "devcontainer":
            raise BuildException(f'{what} needs from_template("devcontainer")')

    def skip_cache(self) -> TemplateBuilder:
        """Builds the steps that follow anew."""
        self._base._force_next = True
        return self

    def set_start_cmd(self, start_cmd: str, ready_cmd: str | ReadyCmd) -> TemplateFinal:
        """What runs when a sandbox starts, and what tells that it is ready."""
        self._base._start = start_cmd
        return self.set_ready_cmd(ready_cmd)

    def set_ready_cmd(self, ready_cmd: str | ReadyCmd) -> TemplateFinal:
        """What tells that the template is ready."""
        self._base._ready = ready_cmd.get_cmd() if isinstance(ready_cmd, ReadyCmd) else ready_cmd
        return TemplateFinal(self._base)


def _some(packages: str | list[str] | None) -> list[str]:
    return [] if packages is None else [_quoted(_list_of(packages))]


def _packages(packages: str | list[str] | None) -> str:
    return "." if packages is None else _quoted(_list_of(packages))


TemplateClass = TemplateFinal | TemplateBuilder
