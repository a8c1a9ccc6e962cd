"""Dockerfiles as steps of a template."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path
from typing import Any

from ._template import TemplateBase, TemplateBuilder

_START = re.compile(r"\s*(?P<word>[A-Za-z]+)\s+(?P<rest>.*)", re.DOTALL)


def _instructions(text: str) -> list[tuple[str, str]]:
    found: list[tuple[str, str]] = []
    waiting = ""
    for line in text.splitlines():
        if line.lstrip().startswith("#") or (not waiting and not line.strip()):
            continue
        waiting += line
        if waiting.rstrip().endswith("\\"):
            waiting = waiting.rstrip()[:-1]
            continue
        match = _START.fullmatch(waiting)
        waiting = ""
        if match is None:
            raise ValueError(f"Dockerfile: not understood: {line.strip()!r}")
        found.append((match["word"].upper(), match["rest"].strip()))
    return found


def _words(rest: str) -> list[str]:
    if rest.startswith("["):
        try:
            told = json.loads(rest)
        except ValueError:
            return shlex.split(rest)
        if isinstance(told, list):
            return [str(word) for word in told]
    return shlex.split(rest)


def _pairs(rest: str) -> dict[str, str]:
    words = shlex.split(rest)
    if words and "=" not in words[0]:  # ENV key value
        return {words[0]: " ".join(words[1:])}
    return {word.partition("=")[0]: word.partition("=")[2] for word in words}


def _image(instructions: list[tuple[str, str]]) -> str:
    images = [rest for word, rest in instructions if word == "FROM"]
    if len(images) != 1:
        raise ValueError(f"Dockerfile: one FROM is needed, there are {len(images)}: stages are not supported")
    words = [word for word in images[0].split() if not word.startswith("--")]
    return words[0]


def _copy(builder: TemplateBuilder, rest: str) -> None:
    words = rest.split()
    flags = [word for word in words if word.startswith("--")]
    owner: Any = next((flag.partition("=")[2] for flag in flags if flag.startswith("--chown=")), None)
    paths = _words(" ".join(word for word in words if not word.startswith("--")))
    if len(paths) < 2:
        raise ValueError(f"Dockerfile: COPY needs a source and a destination: {rest!r}")
    for source in paths[:-1]:
        builder.copy(source, paths[-1], user=owner)


def read(base: TemplateBase, content_or_path: str) -> TemplateBuilder:
    """The steps of a Dockerfile with one stage. Instructions without meaning here are told of and left out."""
    text = content_or_path
    if "\n" not in text and Path(text).is_file():
        text = Path(text).read_text(encoding="utf-8")
    instructions = _instructions(text)
    builder = base.from_image(_image(instructions))
    builder.set_user("root").set_workdir("/")
    has_user = has_workdir = False
    start: str | None = None
    for word, rest in instructions:
        if word == "RUN":
            builder.run_cmd(" ".join(_words(rest)) if rest.startswith("[") else rest)
        elif word in ("COPY", "ADD"):
            _copy(builder, rest)
        elif word == "WORKDIR":
            builder.set_workdir(rest)
            has_workdir = True
        elif word == "USER":
            builder.set_user(rest)
            has_user = True
        elif word == "ENV":
            builder.set_envs(_pairs(rest))
        elif word == "ARG":
            builder.set_envs({key: value for key, value in _pairs(rest).items() if value})
        elif word in ("CMD", "ENTRYPOINT"):
            start = " ".join(_words(rest)) if rest.startswith("[") else rest
        elif word != "FROM":
            print(f"Dockerfile: {word} is left out")
    if not has_user:
        builder.set_user("user")
    if not has_workdir:
        builder.set_workdir("/home/user")
    if start is not None:
        builder.set_start_cmd(start, "sleep 20")
    return builder
