"""What a sandbox may reach and how it ends: the dicts of `network` and `lifecycle`, and their form on the wire."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, TypedDict

from .exceptions import InvalidArgumentException

ALL_TRAFFIC = "0.0.0.0/0"
"""Every IPv4 address: for `allow_out` and `deny_out`."""


class SandboxNetworkTransform(TypedDict, total=False):
    """Headers that the egress proxy sets on requests to a host."""

    headers: dict[str, str]


class SandboxNetworkRule(TypedDict, total=False):
    """What is done to requests to a host."""

    transform: SandboxNetworkTransform


class SandboxNetworkRuleInfo(TypedDict, total=False):
    """A rule as the service tells it."""

    transform: SandboxNetworkTransform


SandboxNetworkRules = dict[str, list[SandboxNetworkRule]]


@dataclass(frozen=True)
class SandboxNetworkSelectorContext:
    """What a selector function is called with."""

    all_traffic: str
    rules: Mapping[str, list[SandboxNetworkRule]]


SandboxNetworkSelector = list[str] | Callable[[SandboxNetworkSelectorContext], list[str]]


class SandboxNetworkOpts(TypedDict, total=False):
    """Network of a new sandbox. Selectors are lists of addresses, ranges and host names, or functions that make one."""

    allow_out: SandboxNetworkSelector
    deny_out: SandboxNetworkSelector
    rules: SandboxNetworkRules
    allow_public_traffic: bool
    mask_request_host: str


class SandboxNetworkUpdate(TypedDict, total=False):
    """Network of a running sandbox; replaces all of it."""

    allow_out: SandboxNetworkSelector
    deny_out: SandboxNetworkSelector
    rules: SandboxNetworkRules
    allow_internet_access: bool


class SandboxNetworkInfo(TypedDict, total=False):
    """Network as the service tells it."""

    allow_out: list[str]
    deny_out: list[str]
    rules: dict[str, list[SandboxNetworkRuleInfo]]
    allow_public_traffic: bool
    mask_request_host: str


class SandboxOnTimeoutPause(TypedDict, total=False):
    """Pause at the end; without `keep_memory` only the file system is kept."""

    action: Literal["pause"]
    keep_memory: bool


class SandboxOnTimeoutKill(TypedDict):
    """Kill at the end."""

    action: Literal["kill"]


SandboxOnTimeout = Literal["pause", "kill"] | SandboxOnTimeoutPause | SandboxOnTimeoutKill


class _LifecycleNeeds(TypedDict):
    on_timeout: SandboxOnTimeout


class SandboxLifecycle(_LifecycleNeeds, total=False):
    """What happens at the end of a sandbox's time, and whether traffic resumes a paused one."""

    auto_resume: bool


class SandboxInfoLifecycle(TypedDict):
    """Lifecycle as the service tells it."""

    on_timeout: Literal["pause", "kill"]
    auto_resume: bool


_NAMES = {
    "allow_out": "allowOut",
    "deny_out": "denyOut",
    "rules": "rules",
    "allow_public_traffic": "allowPublicTraffic",
    "mask_request_host": "maskRequestHost",
    "allow_internet_access": "allow_internet_access",
}


def network_json(network: Mapping[str, Any]) -> str:
    """The wire form of `SandboxNetworkOpts` or `SandboxNetworkUpdate`. Keys that are not known are refused."""
    context = SandboxNetworkSelectorContext(ALL_TRAFFIC, network.get("rules") or {})
    found: dict[str, Any] = {}
    for key, value in network.items():
        if key not in _NAMES:
            raise InvalidArgumentException(f"network: no such key {key!r}; there are {', '.join(_NAMES)}")
        if value is not None:
            found[_NAMES[key]] = list(value(context)) if callable(value) else value
    return json.dumps(found)


def network_info(text: str | None) -> SandboxNetworkInfo | None:
    """What the service told, with this interface's keys."""
    if text is None:
        return None
    told = json.loads(text)
    info = {key: told[name] for key, name in _NAMES.items() if told.get(name) is not None}
    info.pop("allow_internet_access", None)
    found: SandboxNetworkInfo = info  # type: ignore[assignment]
    return found


def lifecycle_flags(lifecycle: SandboxLifecycle | None) -> tuple[bool, bool | None, bool]:
    """(pause at the end, keep memory, resume on traffic). Combinations without meaning are refused."""
    if lifecycle is None:
        return False, None, False
    on_timeout: Any = lifecycle.get("on_timeout", "kill")
    resume = bool(lifecycle.get("auto_resume", False))
    action = on_timeout.get("action") if isinstance(on_timeout, dict) else on_timeout
    keep = on_timeout.get("keep_memory") if isinstance(on_timeout, dict) else None
    if action not in ("pause", "kill"):
        raise InvalidArgumentException(f'lifecycle: on_timeout has to be "pause" or "kill", not {action!r}')
    if keep is not None and action != "pause":
        raise InvalidArgumentException('lifecycle: keep_memory needs on_timeout "pause"')
    if resume and action != "pause":
        raise InvalidArgumentException('lifecycle: auto_resume needs on_timeout "pause"')
    if resume and keep is False:
        raise InvalidArgumentException("lifecycle: auto_resume needs keep_memory")
    return action == "pause", keep, resume
