"""Templates: building them, and what the service knows about them."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from .. import _native
from .._config import ApiParams, ConnectionConfig, config_of
from .._context import archive_of, files_of, hash_of
from .._convert import json_of
from .._template import (
    BuildInfo,
    LogEntry,
    LogEntryEnd,
    LogEntryStart,
    TemplateBase,
    TemplateBuildStatus,
    TemplateBuildStatusResponse,
    TemplateClass,
    TemplateTag,
    TemplateTagInfo,
    status_of,
    time_of,
)
from ..exceptions import (
    AuthenticationException,
    BuildException,
    FileUploadException,
    NotFoundException,
    RateLimitException,
    SandboxException,
    TemplateException,
)
from .run import client, drive, sleep

if TYPE_CHECKING:
    from typing_extensions import Unpack

_POLL_SECONDS = 0.2
_UPLOAD_SECONDS = 3600.0


async def _request(
    config: ConnectionConfig, error: type[Exception], method: str, path: str, body: Any = None, query: str | None = None
) -> Any:
    call = _native.control_request(
        client(config.native), config.native, method, path, query, None if body is None else json.dumps(body), None
    )
    try:
        return json_of(await drive(call))
    except (AuthenticationException, RateLimitException, NotFoundException):
        raise
    except SandboxException as e:
        if type(e) is not SandboxException:
            raise
        told: Any = error(str(e))
        told.code, told.http_status, told.error_code = e.code, e.http_status, e.error_code
        raise told from None


def _part(text: str) -> str:
    return quote(text, safe="")


class AsyncTemplate(TemplateBase):
    """A template: what sandboxes begin with.

    `AsyncTemplate().from_python_image().pip_install("numpy")` describes one, `AsyncTemplate.build` builds it. Options are
    those of `ApiParams`. Errors: BuildException (the build failed, or the service cannot build), FileUploadException,
    TemplateException, AuthenticationException, RateLimitException.
    """

    @staticmethod
    async def build(
        template: TemplateClass,
        name: str | None = None,
        *,
        alias: str | None = None,
        tags: list[str] | None = None,
        cpu_count: int = 2,
        memory_mb: int = 1024,
        skip_cache: bool = False,
        on_build_logs: Callable[[LogEntry], None] | None = None,
        **opts: Unpack[ApiParams],
    ) -> BuildInfo:
        """Builds a template and returns when it is ready. Sandboxes of it get that many processors and MiB of memory.

        `name` may have a tag ("name:tag"); `on_build_logs` is called with each line of the log.
        """
        config = config_of(opts)
        log = on_build_logs or (lambda _: None)
        log(LogEntryStart(datetime.now(timezone.utc), "Build started"))
        info = await _start(config, template, name, alias, tags, cpu_count, memory_mb, skip_cache)
        offset = 0
        while True:
            status = await _status(config, info, offset)
            offset += len(status.log_entries)
            for entry in status.log_entries:
                log(entry)
            ended = status.status in (TemplateBuildStatus.READY, TemplateBuildStatus.ERROR)
            if ended and not status.log_entries:
                break
            if not ended:
                await sleep(_POLL_SECONDS)
        if status.status == TemplateBuildStatus.ERROR:
            reason = status.reason
            step = f" (step {reason.step})" if reason and reason.step else ""
            raise BuildException((reason.message if reason else "the build failed") + step)
        log(LogEntryEnd(datetime.now(timezone.utc), "Build finished"))
        return info

    @staticmethod
    async def build_in_background(
        template: TemplateClass,
        name: str | None = None,
        *,
        alias: str | None = None,
        tags: list[str] | None = None,
        cpu_count: int = 2,
        memory_mb: int = 1024,
        skip_cache: bool = False,
        on_build_logs: Callable[[LogEntry], None] | None = None,
        **opts: Unpack[ApiParams],
    ) -> BuildInfo:
        """Starts a build; `get_build_status` tells how far it is. See `build`."""
        if on_build_logs:
            on_build_logs(LogEntryStart(datetime.now(timezone.utc), "Build started"))
        config = config_of(opts)
        return await _start(config, template, name, alias, tags, cpu_count, memory_mb, skip_cache)

    @staticmethod
    async def get_build_status(
        build_info: BuildInfo, logs_offset: int = 0, **opts: Unpack[ApiParams]
    ) -> TemplateBuildStatusResponse:
        """How far a build is, and the lines of its log from `logs_offset` on."""
        return await _status(config_of(opts), build_info, logs_offset)

    @staticmethod
    async def exists(name: str, **opts: Unpack[ApiParams]) -> bool:
        """Is there a template of this name?"""
        try:
            await _request(config_of(opts), TemplateException, "GET", f"/templates/aliases/{_part(name)}")
        except NotFoundException:
            return False
        except TemplateException as e:
            if e.http_status == 403:  # somebody else's
                return True
            raise
        return True

    @staticmethod
    async def alias_exists(alias: str, **opts: Unpack[ApiParams]) -> bool:
        """Old name of `exists`."""
        return await AsyncTemplate.exists(alias, **opts)

    @staticmethod
    async def assign_tags(target_name: str, tags: str | list[str], **opts: Unpack[ApiParams]) -> TemplateTagInfo:
        """Gives tags to a build ("name" or "name:tag")."""
        body = {"target": target_name, "tags": [tags] if isinstance(tags, str) else tags}
        told = await _request(config_of(opts), TemplateException, "POST", "/templates/tags", body)
        return TemplateTagInfo(told["buildID"], told["tags"])

    @staticmethod
    async def remove_tags(name: str, tags: str | list[str], **opts: Unpack[ApiParams]) -> None:
        """Takes tags away from a template."""
        body = {"name": name, "tags": [tags] if isinstance(tags, str) else tags}
        await _request(config_of(opts), TemplateException, "DELETE", "/templates/tags", body)

    @staticmethod
    async def get_tags(template_id: str, **opts: Unpack[ApiParams]) -> list[TemplateTag]:
        """The tags of a template."""
        config = config_of(opts)
        told = await _request(config, TemplateException, "GET", f"/templates/{_part(template_id)}/tags")
        return [TemplateTag(o["tag"], o["buildID"], time_of(o["createdAt"])) for o in told]


async def _start(
    config: ConnectionConfig,
    template: TemplateClass,
    name: str | None,
    alias: str | None,
    tags: list[str] | None,
    cpu_count: int,
    memory_mb: int,
    skip_cache: bool,
) -> BuildInfo:
    base = template._base
    name = name or alias
    if not name:
        raise TemplateException("a template needs a name")
    body = {"name": name, "tags": tags, "cpuCount": cpu_count, "memoryMB": memory_mb}
    body = {key: value for key, value in body.items() if value is not None}
    told = await _request(config, BuildException, "POST", "/v3/templates", body)
    template_id, build_id = told["templateID"], told["buildID"]
    for step in base._steps:
        if step["type"] == "COPY":
            await _upload(config, base, template_id, step)
    start = base._build_start()
    start["force"] = start["force"] or skip_cache
    path = f"/v2/templates/{_part(template_id)}/builds/{_part(build_id)}"
    await _request(config, BuildException, "POST", path, start)
    return BuildInfo(template_id, build_id, name, name, told.get("tags") or [])


async def _upload(config: ConnectionConfig, base: TemplateBase, template_id: str, step: dict[str, Any]) -> None:
    source, dest, resolve = step["args"][0], step["args"][1], step["_resolve"]
    paths = files_of(base._context, source, base._ignore)
    step["filesHash"] = hash_of(base._context, source, dest, paths, resolve)
    path = f"/templates/{_part(template_id)}/files/{step['filesHash']}"
    told = await _request(config, FileUploadException, "GET", path)
    url = told.get("url")
    if not url or (told.get("present") and not step.get("forceUpload")):
        return
    archive = archive_of(base._context, paths, resolve, step["_gzip"])
    call = _native.http_request(
        client(config.native), config.native, "PUT", url, None, archive, None, None, _UPLOAD_SECONDS, None
    )
    status, _, _, answer = (await drive(call)).result()
    if not 200 <= status < 300:
        raise FileUploadException(
            f"{source}: the upload was answered with {status}: {answer[:200].decode('utf-8', 'replace')}"
        )


async def _status(config: ConnectionConfig, info: BuildInfo, offset: int) -> TemplateBuildStatusResponse:
    path = f"/templates/{_part(info.template_id)}/builds/{_part(info.build_id)}/status"
    return status_of(await _request(config, BuildException, "GET", path, None, f"logsOffset={offset}&limit=100"))
