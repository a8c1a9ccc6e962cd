"""What sandbox objects of both sides have in common."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Any

from ._config import ConnectionConfig, check_config_options
from ._native import Sandbox as Address
from .exceptions import InvalidArgumentException, TemplateException

if TYPE_CHECKING:
    from typing_extensions import Self


def call_options(config: ConnectionConfig, opts: Mapping[str, Any]) -> tuple[ConnectionConfig, float | None]:
    """The configuration for one call with options of its own, and its request timeout (None = the configuration's)."""
    if not opts:
        return config, None
    check_config_options(opts)
    if set(opts) == {"request_timeout"}:
        return config, opts["request_timeout"]
    return ConnectionConfig(**config.get_api_params(**opts)), None


def limit_of(limit: int | None) -> int:
    """Size of a page for the wire: 0 = the service's."""
    if limit is not None and limit < 1:
        raise InvalidArgumentException(f"limit has to be 1 or more, not {limit}")
    return limit or 0


def seconds_of(time: datetime | None) -> int:
    """Unix seconds, 0 = open."""
    return 0 if time is None else round(time.timestamp())


def _version_of(text: str | None) -> tuple[int, ...]:
    parts = (text or "99.99.99").split(".")[:3]
    return tuple(int("".join(c for c in part if c.isdigit()) or 0) for part in parts)


class SandboxBase:
    """Address and URLs of a sandbox. Asks nobody."""

    default_template = "base"
    default_mcp_template = "mcp-gateway"
    default_sandbox_timeout = 300
    mcp_port = 50005

    def __init__(
        self,
        *,
        sandbox_id: str,
        connection_config: ConnectionConfig,
        envd_version: Any = None,
        envd_access_token: str | None = None,
        sandbox_domain: str | None = None,
        traffic_access_token: str | None = None,
    ) -> None:
        """For those who know all its parts; everybody else calls `create` or `connect`."""
        version = None if envd_version is None else str(envd_version)
        self._config = connection_config
        self._address = Address(
            connection_config.native,
            sandbox_id,
            None,
            version,
            envd_access_token,
            traffic_access_token,
            sandbox_domain,
            None,
        )
        self._mcp_token: str | None = None
        self._bind()

    @classmethod
    def _of(cls, address: Address, config: ConnectionConfig) -> Self:
        sandbox = cls.__new__(cls)
        sandbox._config = config
        sandbox._address = address
        sandbox._mcp_token = None
        sandbox._bind()
        return sandbox

    def _bind(self) -> None:
        """Makes what depends on the address."""

    @classmethod
    def _template(cls, template: str | None, has_mcp: bool) -> str | None:
        if template is not None:
            return template
        if has_mcp:
            return cls.default_mcp_template
        return None if cls.default_template == SandboxBase.default_template else cls.default_template

    def _need_envd(self, what: str, *version: int) -> None:
        if _version_of(self._address.envd_version) < version:
            needed = ".".join(map(str, version))
            raise TemplateException(
                f"{what}: needs envd {needed}, the sandbox has {self._address.envd_version}: build its template again"
            )

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.sandbox_id}>"

    @property
    def sandbox_id(self) -> str:
        """Its id."""
        return self._address.id

    @property
    def sandbox_domain(self) -> str:
        """Domain of its hosts."""
        return self._address.domain or self._config.domain

    @property
    def envd_api_url(self) -> str:
        """Base URL of calls into it."""
        return self._address.envd_url

    @property
    def envd_direct_url(self) -> str:
        """Base URL of links that are given away."""
        return self._address.envd_direct_url

    @property
    def traffic_access_token(self) -> str | None:
        """Token that requests to its ports need, when they are not public."""
        return self._address.traffic_token

    @property
    def connection_config(self) -> ConnectionConfig:
        """The configuration that it was made with."""
        return self._config

    def get_host(self, port: int) -> str:
        """Host at which a port of the sandbox is reached."""
        return self._address.host(port)

    def get_mcp_url(self) -> str:
        """URL of the sandbox's MCP gateway."""
        return f"https://{self.get_host(self.mcp_port)}/mcp"

    def download_url(self, path: str, user: str | None = None, use_signature_expiration: int | None = None) -> str:
        """URL from which a file can be downloaded without a key; good for that many seconds (default: for ever).

        Raises InvalidArgumentException for an expiration when the sandbox has no token to sign with.
        """
        return self._file_url(path, "read", user, use_signature_expiration)

    def upload_url(self, path: str, user: str | None = None, use_signature_expiration: int | None = None) -> str:
        """URL to which a file can be uploaded (as a form) without a key; see `download_url`."""
        return self._file_url(path, "write", user, use_signature_expiration)

    def _file_url(self, path: str, operation: str, user: str | None, seconds: int | None) -> str:
        return self._address.file_url(path, operation, user, -1 if seconds is None else seconds)
