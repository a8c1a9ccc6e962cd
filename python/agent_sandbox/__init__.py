"""Client of Agent Sandbox and other services that speak the E2B protocol.

Names are loaded when they are first used: importing this package costs next to nothing.
"""

import os
import sys

# Other distributions add modules to this package (agent_sandbox.server). pkgutil costs more than all the rest here, so it is
# asked only when there is another folder of this name.
if sum(os.path.isfile(os.path.join(entry, __name__, "__init__.py")) for entry in sys.path) > 1:
    __path__ = __import__("pkgutil").extend_path(__path__, __name__)
del os, sys

__version__ = "0.1.0"

TYPE_CHECKING = False
if TYPE_CHECKING:
    from ._api import ApiClient as ApiClient
    from ._async.handle import (
        AsyncCommandHandle as AsyncCommandHandle,
        OutputHandler as OutputHandler,
    )
    from ._async.sandbox import (
        AsyncSandbox as AsyncSandbox,
        AsyncSandboxPaginator as AsyncSandboxPaginator,
        AsyncSnapshotPaginator as AsyncSnapshotPaginator,
    )
    from ._async.template import AsyncTemplate as AsyncTemplate
    from ._async.volume import AsyncVolume as AsyncVolume
    from ._async.watch import AsyncWatchHandle as AsyncWatchHandle
    from ._config import (
        ApiParams as ApiParams,
        ConnectionConfig as ConnectionConfig,
        ProxyTypes as ProxyTypes,
        VolumeApiParams as VolumeApiParams,
        VolumeConnectionConfig as VolumeConnectionConfig,
    )
    from ._git import (
        GitBranches as GitBranches,
        GitFileStatus as GitFileStatus,
        GitResetMode as GitResetMode,
        GitStatus as GitStatus,
    )
    from ._mcp import (
        GitHubMcpServer as GitHubMcpServer,
        GitHubMcpServerConfig as GitHubMcpServerConfig,
        McpServer as McpServer,
    )
    from ._models import (
        CommandExitException as CommandExitException,
        CommandResult as CommandResult,
        EntryInfo as EntryInfo,
        FilesystemEvent as FilesystemEvent,
        FilesystemEventType as FilesystemEventType,
        FileType as FileType,
        ProcessInfo as ProcessInfo,
        PtyOutput as PtyOutput,
        PtySize as PtySize,
        SandboxInfo as SandboxInfo,
        SandboxMetrics as SandboxMetrics,
        SandboxQuery as SandboxQuery,
        SandboxState as SandboxState,
        SnapshotInfo as SnapshotInfo,
        Stderr as Stderr,
        Stdout as Stdout,
        Username as Username,
        WriteInfo as WriteInfo,
    )
    from ._network import (
        ALL_TRAFFIC as ALL_TRAFFIC,
        SandboxEgressProxyInfo as SandboxEgressProxyInfo,
        SandboxEgressProxyOpts as SandboxEgressProxyOpts,
        SandboxEgressProxyTLSOpts as SandboxEgressProxyTLSOpts,
        SandboxInfoLifecycle as SandboxInfoLifecycle,
        SandboxLifecycle as SandboxLifecycle,
        SandboxNetworkInfo as SandboxNetworkInfo,
        SandboxNetworkOpts as SandboxNetworkOpts,
        SandboxNetworkRule as SandboxNetworkRule,
        SandboxNetworkRuleInfo as SandboxNetworkRuleInfo,
        SandboxNetworkRules as SandboxNetworkRules,
        SandboxNetworkSelector as SandboxNetworkSelector,
        SandboxNetworkSelectorContext as SandboxNetworkSelectorContext,
        SandboxNetworkTransform as SandboxNetworkTransform,
        SandboxNetworkUpdate as SandboxNetworkUpdate,
        SandboxOnTimeout as SandboxOnTimeout,
    )
    from ._provider import (
        AuthenticationError as AuthenticationError,
        ExecutionError as ExecutionError,
        FileOperationError as FileOperationError,
        NetworkError as NetworkError,
        ProviderSandbox as ProviderSandbox,
        SandboxCreationError as SandboxCreationError,
        SandboxError as SandboxError,
    )
    from ._ready import (
        ReadyCmd as ReadyCmd,
        wait_for_file as wait_for_file,
        wait_for_port as wait_for_port,
        wait_for_process as wait_for_process,
        wait_for_timeout as wait_for_timeout,
        wait_for_url as wait_for_url,
    )
    from ._signature import get_signature as get_signature
    from ._sync.git import Git as Git
    from ._sync.handle import CommandHandle as CommandHandle
    from ._sync.sandbox import (
        Sandbox as Sandbox,
        SandboxPaginator as SandboxPaginator,
        SnapshotPaginator as SnapshotPaginator,
    )
    from ._sync.template import Template as Template
    from ._sync.volume import Volume as Volume
    from ._sync.watch import WatchHandle as WatchHandle
    from ._template import (
        BuildInfo as BuildInfo,
        BuildStatusReason as BuildStatusReason,
        CopyItem as CopyItem,
        LogEntry as LogEntry,
        LogEntryEnd as LogEntryEnd,
        LogEntryLevel as LogEntryLevel,
        LogEntryStart as LogEntryStart,
        TemplateBase as TemplateBase,
        TemplateBuildStatus as TemplateBuildStatus,
        TemplateBuildStatusResponse as TemplateBuildStatusResponse,
        TemplateClass as TemplateClass,
        TemplateTag as TemplateTag,
        TemplateTagInfo as TemplateTagInfo,
        default_build_logger as default_build_logger,
    )
    from ._volume import (
        VolumeAndToken as VolumeAndToken,
        VolumeEntryStat as VolumeEntryStat,
        VolumeFileType as VolumeFileType,
        VolumeInfo as VolumeInfo,
    )
    from .exceptions import (
        AuthenticationException as AuthenticationException,
        BuildException as BuildException,
        FileNotFoundException as FileNotFoundException,
        FileUploadException as FileUploadException,
        GitAuthException as GitAuthException,
        GitUpstreamException as GitUpstreamException,
        InvalidArgumentException as InvalidArgumentException,
        NotEnoughSpaceException as NotEnoughSpaceException,
        NotFoundException as NotFoundException,
        RateLimitException as RateLimitException,
        SandboxException as SandboxException,
        SandboxNotFoundException as SandboxNotFoundException,
        TemplateException as TemplateException,
        TimeoutException as TimeoutException,
        VolumeException as VolumeException,
    )

# Module -> what it brings.
_MODULES = {
    "_async.sandbox": "AsyncSandbox AsyncSandboxPaginator AsyncSnapshotPaginator",
    "_sync.sandbox": "Sandbox SandboxPaginator SnapshotPaginator",
    "_async.handle": "AsyncCommandHandle OutputHandler",
    "_sync.handle": "CommandHandle",
    "_async.watch": "AsyncWatchHandle",
    "_sync.watch": "WatchHandle",
    "_sync.git": "Git",
    "_async.volume": "AsyncVolume",
    "_sync.volume": "Volume",
    "_async.template": "AsyncTemplate",
    "_sync.template": "Template",
    "_template": (
        "BuildInfo BuildStatusReason CopyItem LogEntry LogEntryEnd LogEntryLevel LogEntryStart TemplateBase "
        "TemplateBuildStatus TemplateBuildStatusResponse TemplateClass TemplateTag TemplateTagInfo "
        "default_build_logger"
    ),
    "_ready": "ReadyCmd wait_for_file wait_for_port wait_for_process wait_for_timeout wait_for_url",
    "_config": "ApiParams ConnectionConfig ProxyTypes VolumeApiParams VolumeConnectionConfig",
    "_models": (
        "CommandExitException CommandResult EntryInfo FileType FilesystemEvent FilesystemEventType "
        "ProcessInfo PtyOutput PtySize SandboxInfo SandboxMetrics SandboxQuery SandboxState SnapshotInfo "
        "Stderr Stdout Username WriteInfo"
    ),
    "_network": (
        "ALL_TRAFFIC SandboxEgressProxyInfo SandboxEgressProxyOpts SandboxEgressProxyTLSOpts "
        "SandboxInfoLifecycle SandboxLifecycle SandboxNetworkInfo SandboxNetworkOpts "
        "SandboxNetworkRule SandboxNetworkRuleInfo SandboxNetworkRules SandboxNetworkSelector "
        "SandboxNetworkSelectorContext SandboxNetworkTransform SandboxNetworkUpdate SandboxOnTimeout"
    ),
    "_mcp": "GitHubMcpServer GitHubMcpServerConfig McpServer",
    "_git": "GitBranches GitFileStatus GitResetMode GitStatus",
    "_volume": "VolumeAndToken VolumeEntryStat VolumeFileType VolumeInfo",
    "_signature": "get_signature",
    "_provider": (
        "AuthenticationError ExecutionError FileOperationError NetworkError ProviderSandbox "
        "SandboxCreationError SandboxError"
    ),
    "_api": "ApiClient",
    "exceptions": (
        "AuthenticationException BuildException FileNotFoundException FileUploadException GitAuthException "
        "GitUpstreamException InvalidArgumentException NotEnoughSpaceException NotFoundException "
        "RateLimitException SandboxException SandboxNotFoundException TemplateException TimeoutException "
        "VolumeException"
    ),
}
_HOME = {name: module for module, names in _MODULES.items() for name in names.split()}

__all__ = ["__version__", *_HOME]  # pyright: ignore[reportUnsupportedDunderAll]


def __getattr__(name: str) -> object:
    module = _HOME.get(name)
    if module is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    # What __import__ does for `from .module import name`, without importlib.
    value = getattr(__import__(module, globals(), None, [name], 1), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOME})
