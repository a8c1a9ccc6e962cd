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


class SandboxEgressProxyTLSOpts(TypedDict, total=False):
    """TLS to an egress proxy. `server_name`: whose certificate it has to be (default: the host of `address`). `ca_cert`:
    who may have signed it, PEM of at most 16,384 bytes (default: whom the service's host trusts).
    """

    server_name: str
    ca_cert: str


class _ProxyNeeds(TypedDict):
    address: str


class SandboxEgressProxyOpts(_ProxyNeeds, total=False):
    """A SOCKS5 server, `address` HOST:PORT, through which connections of the sandbox go; with `tls` by TLS."""

    username: str
    password: str
    tls: bool | SandboxEgressProxyTLSOpts


class SandboxEgressProxyInfo(_ProxyNeeds, total=False):
    """An egress proxy as the service tells it: without its secrets."""

    username: str
    tls: SandboxEgressProxyTLSOpts


class SandboxNetworkOpts(TypedDict, total=False):
    """Network of a new sandbox. Selectors are lists of addresses, ranges and host names, or functions that make one.
    `dns_servers`: addresses, the first four are asked. `https_ports`: ports of the sandbox whose servers speak TLS.
    """

    allow_out: SandboxNetworkSelector
    deny_out: SandboxNetworkSelector
    dns_servers: list[str]
    egress_proxy: SandboxEgressProxyOpts
    https_ports: list[int]
    rules: SandboxNetworkRules
    allow_public_traffic: bool
    mask_request_host: str


class SandboxNetworkUpdate(TypedDict, total=False):
    """Network of a running sandbox; replaces all of it."""

    allow_out: SandboxNetworkSelector
    deny_out: SandboxNetworkSelector
    dns_servers: list[str]
    egress_proxy: SandboxEgressProxyOpts
    rules: SandboxNetworkRules
    allow_internet_access: bool


class SandboxNetworkInfo(TypedDict, total=False):
    """Network as the service tells it."""

    allow_out: list[str]
    deny_out: list[str]
    dns_servers: list[str]
    egress_proxy: SandboxEgressProxyInfo
    https_ports: list[int]
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
    "dns_servers": "dnsServers",
    "egress_proxy": "egressProxy",
    "https_ports": "httpsPorts",
    "rules": "rules",
    "allow_public_traffic": "allowPublicTraffic",
    "mask_request_host": "maskRequestHost",
    "allow_internet_access": "allow_internet_access",
}


_TLS_NAMES = {"server_name": "serverName", "ca_cert": "caCert"}


def _renamed(value: Mapping[str, Any], names: Mapping[str, str], what: str) -> dict[str, Any]:
    for key in value:
        if key not in names:
            raise InvalidArgumentException(f"{what}: no such key {key!r}; there are {', '.join(names)}")
    return {names[key]: item for key, item in value.items() if item is not None}


def _proxy_json(proxy: Mapping[str, Any]) -> dict[str, Any]:
    names = {name: name for name in ("address", "username", "password", "tls")}
    found = _renamed(proxy, names, "network: egress_proxy")
    tls = found.pop("tls", False)
    if isinstance(tls, bool):
        return {**found, "tls": {"enabled": True}} if tls else found
    return {**found, "tls": {"enabled": True, **_renamed(tls, _TLS_NAMES, "network: egress_proxy: tls")}}


def _proxy_info(told: Mapping[str, Any]) -> dict[str, Any]:
    found = {name: told[name] for name in ("address", "username") if told.get(name) is not None}
    tls = told.get("tls") or {}
    if tls.get("enabled"):
        found["tls"] = {key: tls[name] for key, name in _TLS_NAMES.items() if tls.get(name) is not None}
    return found


def network_json(network: Mapping[str, Any]) -> str:
    """The wire form of `SandboxNetworkOpts` or `SandboxNetworkUpdate`. Keys that are not known are refused."""
    context = SandboxNetworkSelectorContext(ALL_TRAFFIC, network.get("rules") or {})
    found: dict[str, Any] = {}
    for key, value in network.items():
        if key not in _NAMES:
            raise InvalidArgumentException(f"network: no such key {key!r}; there are {', '.join(_NAMES)}")
        if value is not None:
            made: Any = list(value(context)) if callable(value) else value
            found[_NAMES[key]] = _proxy_json(made) if key == "egress_proxy" else made
    return json.dumps(found)


def network_info(text: str | None) -> SandboxNetworkInfo | None:
    """What the service told, with this interface's keys."""
    if text is None:
        return None
    told = json.loads(text)
    info = {key: told[name] for key, name in _NAMES.items() if told.get(name) is not None}
    info.pop("allow_internet_access", None)
    if "egress_proxy" in info:
        info["egress_proxy"] = _proxy_info(info["egress_proxy"])
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
