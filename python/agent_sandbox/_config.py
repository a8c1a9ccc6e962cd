"""Connection options: what a call or a sandbox object says itself, and what the configuration adds."""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, TypedDict

from ._log import tracer
from ._native import Config, Sandbox as Address
from ._options import check_options, parameters_of
from .exceptions import AuthenticationException

if TYPE_CHECKING:
    from typing_extensions import Unpack

__all__ = ["ApiParams", "ConnectionConfig", "ProxyTypes", "VolumeApiParams", "VolumeConnectionConfig"]

ProxyTypes = Any
"""URL of a proxy: a str, or an object whose `url` or str() is one (httpx.URL, httpx.Proxy)."""

_KEY = re.compile(r"e2b_[0-9a-f]+\Z")


class ApiParams(TypedDict, total=False):
    """Options that every call takes.

    request_timeout: seconds that a request may take, 0 = no limit (default 60); api_key, domain, api_url, sandbox_url: where
    and as whom; api_headers (headers is its old name): sent to the control plane; proxy: URL; debug: one sandbox at
    localhost, no control plane; validate_api_key: refuse keys that are not e2b_ and hex digits.
    """

    request_timeout: float | None
    headers: dict[str, str] | None
    api_headers: dict[str, str] | None
    api_key: str | None
    validate_api_key: bool | None
    domain: str | None
    api_url: str | None
    debug: bool | None
    proxy: ProxyTypes | None
    sandbox_url: str | None


class VolumeApiParams(TypedDict, total=False):
    """Options that calls about a volume's content take. See `ApiParams`; `token` is the volume's own."""

    domain: str | None
    debug: bool | None
    request_timeout: float | None
    headers: dict[str, str] | None
    token: str | None
    api_url: str | None
    proxy: ProxyTypes | None
    logger: logging.Logger | None


def proxy_url(proxy: ProxyTypes | None) -> str | None:
    """The URL of a proxy in any of its forms."""
    if proxy is None or isinstance(proxy, str):
        return proxy
    return str(getattr(proxy, "url", proxy))


class ConnectionConfig:
    """Where to connect, as whom, and how patiently.

    What is not given comes from the environment (ABX_*, then E2B_*), .env files, ~/.abx/config.toml, or the service that
    runs on this machine; `abx config list --show-origin` tells which. `request_timeout` is in seconds (0 = no limit).
    Raises InvalidArgumentException for values or files that cannot be understood, AuthenticationException for a key that
    `validate_api_key` refuses. A missing key is told by the call that needs one.
    """

    envd_port = 49983

    def __init__(
        self,
        domain: str | None = None,
        debug: bool | None = None,
        api_key: str | None = None,
        validate_api_key: bool | None = None,
        api_url: str | None = None,
        sandbox_url: str | None = None,
        access_token: str | None = None,
        request_timeout: float | None = None,
        headers: dict[str, str] | None = None,
        api_headers: dict[str, str] | None = None,
        integration: str | None = None,
        extra_sandbox_headers: dict[str, str] | None = None,
        proxy: ProxyTypes | None = None,
        logger: logging.Logger | None = None,
    ) -> None:
        self.headers: dict[str, str] = {**(headers or {}), **(api_headers or {})}
        self.native = Config(
            api_key=api_key,
            access_token=access_token,
            api_url=api_url,
            domain=domain,
            sandbox_url=sandbox_url,
            proxy=proxy_url(proxy),
            headers=self.headers,
            sandbox_headers=extra_sandbox_headers,
            request_timeout=request_timeout,
            debug=debug,
            integration=integration,
            user_agent=USER_AGENT,
            trace=tracer(logger),
        )
        self.logger = logger
        self.proxy = proxy
        self.integration = integration
        self.domain: str = self._get("sandbox_domain") or ""
        self.debug = self._get("debug") == "true"
        self.api_key = self._get("sandbox_api_key")
        self.access_token = self._get("access_token")
        self.api_url: str = self._get("sandbox_base_url") or ""
        self.validate_api_key = self._get("validate_api_key") == "true" if validate_api_key is None else validate_api_key
        if request_timeout is None:
            request_timeout = float(self._get("http_timeout") or 0)
        self.request_timeout: float | None = request_timeout or None
        self._given_url = api_url
        self._sandbox_headers: dict[str, str] = dict(extra_sandbox_headers or {})
        if self.validate_api_key and self.api_key is not None and not _KEY.match(self.api_key):
            raise AuthenticationException('the API key has to be "e2b_" and hex digits (validate_api_key is on)')

    def _get(self, key: str) -> str | None:
        return self.native.get(key, True)[0]

    def get_request_timeout(self, request_timeout: float | None = None) -> float | None:
        """Seconds that a request may take: `request_timeout`, else the configured ones; None = no limit."""
        if request_timeout is None:
            return self.request_timeout
        return request_timeout or None

    @property
    def sandbox_headers(self) -> dict[str, str]:
        """Headers that requests into sandboxes carry besides those of the protocol."""
        return dict(self._sandbox_headers)

    def _address(self, sandbox_id: str, sandbox_domain: str | None) -> Address:
        return Address(self.native, sandbox_id, None, None, None, None, sandbox_domain, None)

    def get_sandbox_url(self, sandbox_id: str, sandbox_domain: str) -> str:
        """Base URL for calls into a sandbox."""
        return self._address(sandbox_id, sandbox_domain).envd_url

    def get_sandbox_direct_url(self, sandbox_id: str, sandbox_domain: str) -> str:
        """Base URL of a sandbox for links that are given away."""
        return self._address(sandbox_id, sandbox_domain).envd_direct_url

    def get_host(self, sandbox_id: str, sandbox_domain: str, port: int) -> str:
        """Host (and port) at which a port of a sandbox is reached."""
        return self._address(sandbox_id, sandbox_domain).host(port)

    def get_api_params(self, **opts: Unpack[ApiParams]) -> dict[str, Any]:
        """This configuration as options of a call, with `opts` in their place where given."""
        found: dict[str, Any] = {
            "api_key": self.api_key,
            "validate_api_key": self.validate_api_key,
            "api_url": self._given_url if opts.get("domain") else self._told("sandbox_base_url"),
            "domain": self._told("sandbox_domain"),
            "debug": self.debug,
            "request_timeout": self.request_timeout or 0,
            "proxy": self.proxy,
            "sandbox_url": self.native.get("sandbox_url")[0],
            "access_token": self.access_token,
            "integration": self.integration,
            "logger": self.logger,
            **{key: value for key, value in opts.items() if value is not None},
            "headers": {**self.headers, **(opts.get("headers") or {}), **(opts.get("api_headers") or {})},
        }
        found.pop("api_headers", None)
        if self._sandbox_headers:
            found["extra_sandbox_headers"] = self._sandbox_headers
        return found

    def _told(self, key: str) -> str | None:
        """The value that somebody set: not a default, and not one that follows from another key."""
        value, origin = self.native.get(key)
        return None if origin == "default" or (origin or "").startswith("from ") else value


_CONFIG_OPTIONS = frozenset(parameters_of(ConnectionConfig.__init__))


def check_config_options(opts: Mapping[str, Any]) -> None:
    """Raises TypeError, about the method that was called, for an option that `ConnectionConfig` does not have."""
    check_options(opts, _CONFIG_OPTIONS)


def config_of(opts: Mapping[str, Any], **more: Any) -> ConnectionConfig:
    """The configuration of a call with these options."""
    check_config_options(opts)
    return ConnectionConfig(**more, **opts)


class VolumeConnectionConfig:
    """Where a volume's content is, and the token for it. See `ConnectionConfig`."""

    def __init__(
        self,
        domain: str | None = None,
        debug: bool | None = None,
        token: str | None = None,
        api_url: str | None = None,
        request_timeout: float | None = None,
        headers: dict[str, str] | None = None,
        proxy: ProxyTypes | None = None,
        logger: logging.Logger | None = None,
    ) -> None:
        self.headers: dict[str, str] = dict(headers or {})
        self.native = Config(
            domain=domain, volume_url=api_url, proxy=proxy_url(proxy), request_timeout=request_timeout, debug=debug,
            user_agent=USER_AGENT, trace=tracer(logger),
        )  # fmt: skip
        self.logger = logger
        self.proxy = proxy
        self.token = token
        self.domain: str = self.native.get("sandbox_domain")[0] or ""
        self.debug = self.native.get("debug")[0] == "true"
        url = self.native.get("volume_api_url")[0] or self.native.get("sandbox_base_url")[0] or ""
        self.api_url: str = url.rstrip("/")
        if request_timeout is None:
            request_timeout = float(self.native.get("http_timeout")[0] or 0)
        self.request_timeout: float | None = request_timeout or None

    def get_request_timeout(self, request_timeout: float | None = None) -> float | None:
        """Seconds that a request may take: `request_timeout`, else the configured ones; None = no limit."""
        if request_timeout is None:
            return self.request_timeout
        return request_timeout or None

    def get_api_params(self, **opts: Unpack[VolumeApiParams]) -> dict[str, Any]:
        """This configuration as options of a call, with `opts` in their place where given."""
        return {
            "domain": self.domain,
            "debug": self.debug,
            "token": self.token,
            "api_url": self.api_url,
            "request_timeout": self.request_timeout or 0,
            "headers": {**self.headers, **(opts.get("headers") or {})},
            "proxy": self.proxy,
            "logger": self.logger,
            **{k: v for k, v in opts.items() if v is not None and k != "headers"},
        }


_VOLUME_OPTIONS = frozenset(parameters_of(VolumeConnectionConfig.__init__))


def volume_config_of(opts: Mapping[str, Any], **given: Any) -> VolumeConnectionConfig:
    """The configuration of a call about a volume's content with these options, which come before `given`."""
    check_options(opts, _VOLUME_OPTIONS)
    return VolumeConnectionConfig(**{**given, **opts})


def _user_agent() -> str:
    from . import __version__

    return f"agent-sandbox-python/{__version__}"


USER_AGENT = _user_agent()
