"""Files of a template's context folder: which ones a step copies, their hash, and the archive that is uploaded."""

from __future__ import annotations

import fnmatch
import glob
import hashlib
import io
import os
import stat
import tarfile

from .exceptions import TemplateException


def _ignored(context: str, patterns: list[str]) -> list[str]:
    file = os.path.join(context, ".dockerignore")
    lines: list[str] = []
    if os.path.isfile(file):
        with open(file, encoding="utf-8") as f:
            lines = [line.strip() for line in f]
    return [p.strip("/") for p in (*patterns, *lines) if p and not p.startswith("#")]


def _is_ignored(path: str, patterns: list[str]) -> bool:
    parts = path.split("/")
    heads = ["/".join(parts[:n]) for n in range(1, len(parts) + 1)]
    return any(fnmatch.fnmatch(head, p.removeprefix("**/")) for p in patterns for head in heads)


def files_of(context: str, source: str, ignore: list[str]) -> list[str]:
    """Paths below the context folder, sorted, folders too, that a COPY of `source` takes."""
    patterns = _ignored(context, ignore)
    found: set[str] = set()
    for hit in glob.glob(os.path.join(context, source), recursive=True):
        relative = os.path.relpath(hit, context)
        found.add(relative)
        if os.path.isdir(hit) and not os.path.islink(hit):
            for folder, folders, files in os.walk(hit):
                found.update(os.path.relpath(os.path.join(folder, name), context) for name in (*folders, *files))
    kept = sorted(path for path in found if path == "." or not _is_ignored(path, patterns))
    if not kept:
        raise TemplateException(f"copy: {source} matches nothing in {context}")
    return kept


def hash_of(context: str, source: str, dest: str, paths: list[str], resolve: bool) -> str:
    """The hash by which the service knows these files."""
    digest = hashlib.sha256(f"COPY {source} {dest}".encode())
    for path in paths:
        full = os.path.join(context, path)
        info = os.stat(full) if resolve else os.lstat(full)
        digest.update(path.encode())
        digest.update(str(info.st_mode).encode())
        digest.update(str(info.st_size).encode())
        if stat.S_ISLNK(info.st_mode):
            digest.update(os.readlink(full).encode())
        elif stat.S_ISREG(info.st_mode):
            with open(full, "rb") as f:
                while piece := f.read(1 << 20):
                    digest.update(piece)
    return digest.hexdigest()


def archive_of(context: str, paths: list[str], resolve: bool, gzip: bool) -> bytes:
    """The files as an archive, names relative to the context folder."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz" if gzip else "w", dereference=resolve) as archive:
        for path in paths:
            archive.add(os.path.join(context, path), arcname=path, recursive=False)
    return buffer.getvalue()
