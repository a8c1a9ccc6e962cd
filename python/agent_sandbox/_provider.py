"""The provider side of the interface: its errors, and where ProviderSandbox will be."""

from __future__ import annotations

from typing import Any, NoReturn


class SandboxError(Exception):
    """Base of the provider side's errors: a code such as "E2001", and what to do about it."""

    default_code = "E0000"

    def __init__(
        self, message: str, code: str | None = None, suggestion: str | None = None, docs_url: str | None = None
    ) -> None:
        super().__init__(message)
        self.message = message
        self.code = code or self.default_code
        self.suggestion = suggestion
        self.docs_url = docs_url

    def __str__(self) -> str:
        text = f"[{self.code}] {self.message}"
        return f"{text}\n{self.suggestion}" if self.suggestion else text

    def to_dict(self) -> dict[str, Any]:
        """Its parts, for JSON."""
        return {
            "code": self.code, "message": self.message, "suggestion": self.suggestion, "docs_url": self.docs_url,
        }  # fmt: skip


class AuthenticationError(SandboxError):
    """No valid credentials."""

    default_code = "E1000"


class SandboxCreationError(SandboxError):
    """A sandbox could not be made."""

    default_code = "E2000"


class ExecutionError(SandboxError):
    """A command or code could not be run."""

    default_code = "E3000"


class FileOperationError(SandboxError):
    """A file could not be read or written."""

    default_code = "E4000"


class NetworkError(SandboxError):
    """No connection."""

    default_code = "E5000"


class ProviderSandbox:
    """Sandbox of a provider. This release does not have it: `AsyncSandbox` and `Sandbox` are the interface."""

    def __init__(self, *_: object, **__: object) -> None:
        _missing()

    @classmethod
    async def create(cls, *_: object, **__: object) -> NoReturn:
        """Not there yet; raises NotImplementedError."""
        _missing()

    @classmethod
    async def connect(cls, *_: object, **__: object) -> NoReturn:
        """Not there yet; raises NotImplementedError."""
        _missing()


def _missing() -> NoReturn:
    raise NotImplementedError("ProviderSandbox is not in this release: use agent_sandbox.AsyncSandbox or Sandbox")
