# Made by python/make_sync.py of agent_sandbox/_async/git.py; never edited.
"""Git in a sandbox."""

from __future__ import annotations

from .. import _native
from .._git import (
    RESET_MODES,
    GitBranches,
    GitResetMode,
    GitStatus,
    branches_of,
    check_credentials,
    failure_of,
    need,
    repository_name,
    scope_words,
    status_of,
)
from .._models import CommandExitException, CommandResult
from ..exceptions import InvalidArgumentException
from .commands import Commands

_Run = tuple[dict[str, str] | None, str | None, str | None, float | None, float | None]


class Git:
    """Git in a sandbox, as commands of `user`.

    `path` is the repository. `envs`, `user`, `cwd`, `timeout` and `request_timeout` (seconds) those of `commands.run`. git
    never asks: that is an error. Errors: GitAuthException (the server wants other credentials),
    GitUpstreamException (no upstream), InvalidArgumentException; CommandExitException for all else that git says no to.
    """

    def __init__(self, commands: Commands) -> None:
        self._commands = commands

    def _shell(self, command: str, run: _Run) -> CommandResult:
        envs, user, cwd, timeout, request_timeout = run
        return self._commands.run(
            command,
            envs={"GIT_TERMINAL_PROMPT": "0", **(envs or {})},
            user=user,
            cwd=cwd,
            timeout=60 if timeout is None else timeout,
            request_timeout=request_timeout,
        )

    def _git(self, what: str, path: str | None, words: list[str], run: _Run) -> CommandResult:
        try:
            return self._shell(_native.git_command(path, words), run)
        except CommandExitException as e:
            error = failure_of(e, what)
            if error is e:
                raise
            raise error from e

    def clone(
        self,
        url: str,
        path: str | None = None,
        branch: str | None = None,
        depth: int | None = None,
        username: str | None = None,
        password: str | None = None,
        envs: dict[str, str] | None = None,
        user: str | None = None,
        cwd: str | None = None,
        timeout: float | None = None,
        request_timeout: float | None = None,
        dangerously_store_credentials: bool = False,
    ) -> CommandResult:
        """Clones a repository: one branch of it with `branch`, its last `depth` commits with `depth`.

        Credentials (for http and https) are not kept in the repository, unless `dangerously_store_credentials`.
        """
        need(url=url)
        run = (envs, user, cwd, timeout, request_timeout)
        has_credentials = check_credentials(username, password)
        words = ["clone", _native.git_url(url, username, password) if has_credentials else url]
        if branch:
            words += ["--branch", branch, "--single-branch"]
        if depth:
            words += ["--depth", str(depth)]
        if path:
            words.append(path)
        forget = has_credentials and not dangerously_store_credentials
        folder = path or repository_name(url)
        if forget and not folder:
            raise InvalidArgumentException("path is needed: the URL names no folder")
        result = self._git("clone", None, words, run)
        if forget:
            self._git("clone", folder, ["remote", "set-url", "origin", _native.git_url(url, None, None)], run)
        return result

    def init(
        self,
        path: str,
        bare: bool = False,
        initial_branch: str | None = None,
        envs: dict[str, str] | None = None,
        user: str | None = None,
        cwd: str | None = None,
        timeout: float | None = None,
        request_timeout: float | None = None,
    ) -> CommandResult:
        """Makes a repository."""
        need(path=path)
        words = ["init"]
        if initial_branch:
            words += ["--initial-branch", initial_branch]
        if bare:
            words.append("--bare")
        return self._git("init", None, [*words, path], (envs, user, cwd, timeout, request_timeout))

    def remote_add(
        self,
        path: str,
        name: str,
        url: str,
        fetch: bool = False,
        overwrite: bool = False,
        envs: dict[str, str] | None = None,
        user: str | None = None,
        cwd: str | None = None,
        timeout: float | None = None,
        request_timeout: float | None = None,
    ) -> CommandResult:
        """Adds a remote, and fetches from it with `fetch`. `overwrite` changes the URL of one that is there."""
        need(path=path, name=name, url=url)
        run = (envs, user, cwd, timeout, request_timeout)
        if not overwrite:
            return self._git("remote add", path, ["remote", "add", *(["-f"] if fetch else []), name, url], run)
        try:
            result = self._git("remote add", path, ["remote", "add", name, url], run)
        except CommandExitException:
            result = self._git("remote set-url", path, ["remote", "set-url", name, url], run)
        if fetch:
            result = self._git("fetch", path, ["fetch", name], run)
        return result

    def remote_get(
        self,
        path: str,
        name: str,
        envs: dict[str, str] | None = None,
        user: str | None = None,
        cwd: str | None = None,
        timeout: float | None = None,
        request_timeout: float | None = None,
    ) -> str | None:
        """URL of a remote; None when there is none of this name."""
        need(path=path, name=name)
        command = _native.git_command(path, ["remote", "get-url", name]) + " || true"
        result = self._shell(command, (envs, user, cwd, timeout, request_timeout))
        return result.stdout.strip() or None

    def status(
        self,
        path: str,
        envs: dict[str, str] | None = None,
        user: str | None = None,
        cwd: str | None = None,
        timeout: float | None = None,
        request_timeout: float | None = None,
    ) -> GitStatus:
        """What changed, and where the branch stands."""
        run = (envs, user, cwd, timeout, request_timeout)
        result = self._git("status", path, ["status", "--porcelain=1", "-b"], run)
        return status_of(result.stdout)

    def branches(
        self,
        path: str,
        envs: dict[str, str] | None = None,
        user: str | None = None,
        cwd: str | None = None,
        timeout: float | None = None,
        request_timeout: float | None = None,
    ) -> GitBranches:
        """The local branches."""
        run = (envs, user, cwd, timeout, request_timeout)
        result = self._git("branch", path, ["branch", "--format=%(refname:short)\t%(HEAD)"], run)
        return branches_of(result.stdout)

    def create_branch(
        self,
        path: str,
        branch: str,
        envs: dict[str, str] | None = None,
        user: str | None = None,
        cwd: str | None = None,
        timeout: float | None = None,
        request_timeout: float | None = None,
    ) -> CommandResult:
        """Makes a branch and checks it out."""
        need(path=path, branch=branch)
        run = (envs, user, cwd, timeout, request_timeout)
        return self._git("checkout", path, ["checkout", "-b", branch], run)

    def checkout_branch(
        self,
        path: str,
        branch: str,
        envs: dict[str, str] | None = None,
        user: str | None = None,
        cwd: str | None = None,
        timeout: float | None = None,
        request_timeout: float | None = None,
    ) -> CommandResult:
        """Checks out a branch."""
        need(path=path, branch=branch)
        return self._git("checkout", path, ["checkout", branch], (envs, user, cwd, timeout, request_timeout))

    def delete_branch(
        self,
        path: str,
        branch: str,
        force: bool = False,
        envs: dict[str, str] | None = None,
        user: str | None = None,
        cwd: str | None = None,
        timeout: float | None = None,
        request_timeout: float | None = None,
    ) -> CommandResult:
        """Removes a branch; with `force` also one that is not merged."""
        need(path=path, branch=branch)
        run = (envs, user, cwd, timeout, request_timeout)
        return self._git("branch", path, ["branch", "-D" if force else "-d", branch], run)

    def add(
        self,
        path: str,
        files: list[str] | None = None,
        all: bool = True,
        envs: dict[str, str] | None = None,
        user: str | None = None,
        cwd: str | None = None,
        timeout: float | None = None,
        request_timeout: float | None = None,
    ) -> CommandResult:
        """Stages files; without any, all changes (or, not `all`, those below the repository's folder)."""
        words = ["add", "--", *files] if files else ["add", "-A" if all else "."]
        return self._git("add", path, words, (envs, user, cwd, timeout, request_timeout))

    def commit(
        self,
        path: str,
        message: str,
        author_name: str | None = None,
        author_email: str | None = None,
        allow_empty: bool = False,
        envs: dict[str, str] | None = None,
        user: str | None = None,
        cwd: str | None = None,
        timeout: float | None = None,
        request_timeout: float | None = None,
    ) -> CommandResult:
        """Commits what is staged, as the configured author or as the one given."""
        need(path=path, message=message)
        words: list[str] = []
        if author_name:
            words += ["-c", f"user.name={author_name}"]
        if author_email:
            words += ["-c", f"user.email={author_email}"]
        words += ["commit", "-m", message]
        if allow_empty:
            words.append("--allow-empty")
        return self._git("commit", path, words, (envs, user, cwd, timeout, request_timeout))

    def reset(
        self,
        path: str,
        mode: GitResetMode | None = None,
        target: str | None = None,
        paths: list[str] | None = None,
        envs: dict[str, str] | None = None,
        user: str | None = None,
        cwd: str | None = None,
        timeout: float | None = None,
        request_timeout: float | None = None,
    ) -> CommandResult:
        """Resets the branch to `target` (default: HEAD), or only the index of `paths`."""
        if mode is not None and mode not in RESET_MODES:
            raise InvalidArgumentException(f"mode has to be one of {', '.join(RESET_MODES)}, not {mode!r}")
        words = ["reset", *([f"--{mode}"] if mode else []), *([target] if target else [])]
        if paths:
            words += ["--", *paths]
        return self._git("reset", path, words, (envs, user, cwd, timeout, request_timeout))

    def restore(
        self,
        path: str,
        paths: list[str],
        staged: bool | None = None,
        worktree: bool | None = None,
        source: str | None = None,
        envs: dict[str, str] | None = None,
        user: str | None = None,
        cwd: str | None = None,
        timeout: float | None = None,
        request_timeout: float | None = None,
    ) -> CommandResult:
        """Takes back changes of `paths`: in the working tree (default), in the index with `staged`, or in both."""
        if not paths:
            raise InvalidArgumentException("paths are needed")
        if staged is None and worktree is None:
            worktree = True
        elif staged is not None and worktree is None:
            worktree = not staged
        if not staged and not worktree:
            raise InvalidArgumentException("staged or worktree has to be True")
        words = ["restore", *(["--worktree"] if worktree else []), *(["--staged"] if staged else [])]
        if source:
            words += ["--source", source]
        return self._git("restore", path, [*words, "--", *paths], (envs, user, cwd, timeout, request_timeout))

    def push(
        self,
        path: str,
        remote: str | None = None,
        branch: str | None = None,
        set_upstream: bool = True,
        username: str | None = None,
        password: str | None = None,
        envs: dict[str, str] | None = None,
        user: str | None = None,
        cwd: str | None = None,
        timeout: float | None = None,
        request_timeout: float | None = None,
    ) -> CommandResult:
        """Pushes a branch (default: the one checked out), which follows the remote one from then on if `set_upstream`.

        Credentials are used for this push only.
        """
        run = (envs, user, cwd, timeout, request_timeout)
        has_credentials = check_credentials(username, password)
        if has_credentials or (set_upstream and (remote or branch)):
            remote = remote or self._remote(path, run)
        if set_upstream and remote and not branch:
            branch = (self._git("push", path, ["rev-parse", "--abbrev-ref", "HEAD"], run)).stdout.strip()
        words = ["push", *(["--set-upstream"] if set_upstream and remote else [])]
        words += [word for word in (remote, branch) if word]
        if not has_credentials:
            return self._git("push", path, words, run)
        return self._with_credentials("push", path, remote or "origin", username, password, words, run)

    def pull(
        self,
        path: str,
        remote: str | None = None,
        branch: str | None = None,
        username: str | None = None,
        password: str | None = None,
        envs: dict[str, str] | None = None,
        user: str | None = None,
        cwd: str | None = None,
        timeout: float | None = None,
        request_timeout: float | None = None,
    ) -> CommandResult:
        """Pulls from the upstream, or from `remote` and `branch`. Credentials are used for this pull only."""
        run = (envs, user, cwd, timeout, request_timeout)
        has_credentials = check_credentials(username, password)
        if not remote and not branch:
            self._git("pull", path, ["rev-parse", "--abbrev-ref", "--symbolic-full-name", "@{u}"], run)
        words = ["pull", *[word for word in (remote, branch) if word]]
        if not has_credentials:
            return self._git("pull", path, words, run)
        remote = remote or self._remote(path, run)
        return self._with_credentials("pull", path, remote, username, password, words, run)

    def _remote(self, path: str, run: _Run) -> str:
        names = (self._git("remote", path, ["remote"], run)).stdout.split()
        if len(names) == 1:
            return names[0]
        raise InvalidArgumentException(f"remote is needed: the repository has {len(names)}")

    def _with_credentials(
        self,
        what: str,
        path: str,
        remote: str,
        username: str | None,
        password: str | None,
        words: list[str],
        run: _Run,
    ) -> CommandResult:
        url = (self._git(what, path, ["remote", "get-url", remote], run)).stdout.strip()
        secret = _native.git_url(url, username, password)
        self._git(what, path, ["remote", "set-url", remote, secret], run)
        try:
            return self._git(what, path, words, run)
        finally:
            self._git(what, path, ["remote", "set-url", remote, url], run)

    def set_config(
        self,
        key: str,
        value: str,
        scope: str = "global",
        path: str | None = None,
        envs: dict[str, str] | None = None,
        user: str | None = None,
        cwd: str | None = None,
        timeout: float | None = None,
        request_timeout: float | None = None,
    ) -> CommandResult:
        """Sets a value of git's configuration: "global", "local" (of the repository at `path`) or "system"."""
        need(key=key)
        repo, option = scope_words(scope, path)
        return self._git("config", repo, ["config", option, key, value], (envs, user, cwd, timeout, request_timeout))

    def get_config(
        self,
        key: str,
        scope: str = "global",
        path: str | None = None,
        envs: dict[str, str] | None = None,
        user: str | None = None,
        cwd: str | None = None,
        timeout: float | None = None,
        request_timeout: float | None = None,
    ) -> str | None:
        """A value of git's configuration; None when it is not set."""
        need(key=key)
        repo, option = scope_words(scope, path)
        command = _native.git_command(repo, ["config", option, "--get", key]) + " || true"
        result = self._shell(command, (envs, user, cwd, timeout, request_timeout))
        return result.stdout.strip() or None

    def dangerously_authenticate(
        self,
        username: str,
        password: str,
        host: str = "github.com",
        protocol: str = "https",
        envs: dict[str, str] | None = None,
        user: str | None = None,
        cwd: str | None = None,
        timeout: float | None = None,
        request_timeout: float | None = None,
    ) -> CommandResult:
        """Stores credentials for a host in the sandbox, where every process of the user can read them."""
        need(username=username, password=password, host=host, protocol=protocol)
        run = (envs, user, cwd, timeout, request_timeout)
        self.set_config("credential.helper", "store", "global", None, *run)
        fields = f"protocol={protocol}\nhost={host}\nusername={username}\npassword={password}\n\n"
        if any("\n" in text or "\0" in text for text in (protocol, host, username, password)):
            raise InvalidArgumentException("credentials have to be one line each")
        # In the environment, because command lines are in logs, and all processes can see them.
        run = ({**(envs or {}), "ABX_GIT_CREDENTIALS": fields}, user, cwd, timeout, request_timeout)
        command = _native.git_command(None, ["credential", "approve"])
        return self._shell('printf %s "$ABX_GIT_CREDENTIALS" | ' + command, run)

    def configure_user(
        self,
        name: str,
        email: str,
        scope: str = "global",
        path: str | None = None,
        envs: dict[str, str] | None = None,
        user: str | None = None,
        cwd: str | None = None,
        timeout: float | None = None,
        request_timeout: float | None = None,
    ) -> CommandResult:
        """Sets the author of commits."""
        need(name=name, email=email)
        run = (envs, user, cwd, timeout, request_timeout)
        self.set_config("user.name", name, scope, path, *run)
        return self.set_config("user.email", email, scope, path, *run)
