"""Which MCP servers run in a sandbox."""

from __future__ import annotations

from typing import Any, TypedDict


class _GitHubNeeds(TypedDict):
    run_cmd: str


class GitHubMcpServerConfig(_GitHubNeeds, total=False):
    """A server that is fetched from GitHub: how to install it, how to run it, and its environment."""

    install_cmd: str
    envs: dict[str, str]


GitHubMcpServer = dict[str, GitHubMcpServerConfig | Any]
"""Servers by "github/<owner>/<repository>"."""

McpServer = dict[str, Any]
"""Servers by name, each with its options."""
