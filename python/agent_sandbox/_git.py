"""What git in a sandbox says, and how it is asked: shared by both sides."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal
from urllib.parse import urlsplit

from . import _native
from ._models import CommandExitException
from .exceptions import GitAuthException, GitUpstreamException, InvalidArgumentException

GitResetMode = Literal["soft", "mixed", "hard", "merge", "keep"]

RESET_MODES = ("soft", "mixed", "hard", "merge", "keep")
_SCOPES = ("global", "local", "system")
_WORDS = {
    "M": "modified", "A": "added", "D": "deleted", "R": "renamed", "C": "copied", "T": "typechange", "?": "untracked",
}  # fmt: skip
_CONFLICTS = {"DD", "AU", "UD", "UA", "DU", "AA", "UU"}


@dataclass
class GitFileStatus:
    """A changed file: in one word, and git's letters for index and working tree (" " = unchanged)."""

    name: str
    status: str
    index_status: str
    working_tree_status: str
    staged: bool
    renamed_from: str | None = None


@dataclass
class GitStatus:
    """State of a repository. `ahead` and `behind` count commits against `upstream`."""

    current_branch: str | None
    upstream: str | None
    ahead: int
    behind: int
    detached: bool
    file_status: list[GitFileStatus]

    @property
    def is_clean(self) -> bool:
        """Nothing changed."""
        return not self.file_status

    @property
    def has_changes(self) -> bool:
        """Something changed."""
        return bool(self.file_status)

    @property
    def has_staged(self) -> bool:
        """Something is staged."""
        return self.staged_count > 0

    @property
    def has_untracked(self) -> bool:
        """There are files that git does not know."""
        return self.untracked_count > 0

    @property
    def has_conflicts(self) -> bool:
        """There are conflicts."""
        return self.conflict_count > 0

    @property
    def total_count(self) -> int:
        """Changed files."""
        return len(self.file_status)

    @property
    def staged_count(self) -> int:
        """Files with something staged."""
        return sum(file.staged for file in self.file_status)

    @property
    def unstaged_count(self) -> int:
        """Files with nothing staged."""
        return sum(not file.staged for file in self.file_status)

    @property
    def untracked_count(self) -> int:
        """Files that git does not know."""
        return sum(file.status == "untracked" for file in self.file_status)

    @property
    def conflict_count(self) -> int:
        """Files in conflict."""
        return sum(file.status == "conflict" for file in self.file_status)


@dataclass
class GitBranches:
    """Local branches; `current_branch` is None when none is checked out."""

    branches: list[str]
    current_branch: str | None


def _file_of(path: str, renamed_from: str | None, index: str, worktree: str) -> GitFileStatus:
    both = index + worktree
    if both in _CONFLICTS:
        status = "conflict"
    else:
        status = next((_WORDS[c] for c in "RC?DAMT" if c in both), "unknown")
    return GitFileStatus(path, status, index, worktree, index not in " ?", renamed_from)


def status_of(text: str) -> GitStatus:
    """From `git status --porcelain=1 -b`."""
    branch, upstream, ahead, behind, detached, files = _native.git_status(text)
    return GitStatus(branch, upstream, ahead, behind, detached, [_file_of(*file) for file in files])


def branches_of(text: str) -> GitBranches:
    """From `git branch` with name and HEAD mark, a tab between."""
    names, current = [], None
    for line in text.splitlines():
        name, _, mark = line.partition("\t")
        name = name.strip()
        if not name or name.startswith("("):  # "(HEAD detached at ...)" is none
            continue
        names.append(name)
        if mark.strip() == "*":
            current = name
    return GitBranches(names, current)


def scope_words(scope: str, path: str | None) -> tuple[str | None, str]:
    """(repository, option) for a scope of `git config`."""
    scope = scope.strip().lower()
    if scope not in _SCOPES:
        raise InvalidArgumentException(f"scope has to be one of {', '.join(_SCOPES)}, not {scope!r}")
    if scope == "local" and not path:
        raise InvalidArgumentException('scope "local" needs the path of a repository')
    return (path if scope == "local" else None), f"--{scope}"


def need(**values: str | None) -> None:
    """Refuses empty values."""
    for name, value in values.items():
        if not value:
            raise InvalidArgumentException(f"{name} is needed")


def check_credentials(username: str | None, password: str | None) -> bool:
    """Are there credentials? A password alone is refused; a username alone is none."""
    if password and not username:
        raise InvalidArgumentException("a password needs a username")
    return bool(username and password)


def repository_name(url: str) -> str | None:
    """The folder that `git clone` makes for a URL."""
    name = (urlsplit(url).path or url).rstrip("/").replace(":", "/").rsplit("/", 1)[-1]
    return name.removesuffix(".git") or None


def failure_of(error: CommandExitException, what: str) -> Exception:
    """The exception that says why git failed."""
    kind = _native.git_failure(error.stdout, error.stderr)
    if kind == 1:
        return GitAuthException(f"git {what}: the server wants (other) credentials: {error.stderr.strip()}")
    if kind == 2:
        return GitUpstreamException(
            f"git {what}: the branch has no upstream: name remote and branch, or push with set_upstream"
        )
    return error
