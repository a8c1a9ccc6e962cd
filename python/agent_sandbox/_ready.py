"""Commands that tell when a template is ready."""

from __future__ import annotations

import shlex


class ReadyCmd:
    """A shell command that succeeds once what was started is ready."""

    def __init__(self, cmd: str) -> None:
        self.__cmd = cmd

    def get_cmd(self) -> str:
        """The command."""
        return self.__cmd


def wait_for_port(port: int) -> ReadyCmd:
    """Ready when something listens on a TCP port."""
    return ReadyCmd(f'[ -n "$(ss -Htuln sport = :{port})" ]')


def wait_for_url(url: str, status_code: int = 200) -> ReadyCmd:
    """Ready when a URL answers with a status."""
    return ReadyCmd(f'curl -s -o /dev/null -w "%{{http_code}}" {shlex.quote(url)} | grep -q "{status_code}"')


def wait_for_process(process_name: str) -> ReadyCmd:
    """Ready when a process of this name runs."""
    return ReadyCmd(f"pgrep {shlex.quote(process_name)} > /dev/null")


def wait_for_file(filename: str) -> ReadyCmd:
    """Ready when a file exists."""
    return ReadyCmd(f"[ -f {shlex.quote(filename)} ]")


def wait_for_timeout(timeout: int) -> ReadyCmd:
    """Ready after `timeout` milliseconds (rounded down to seconds, at least one)."""
    return ReadyCmd(f"sleep {max(1, timeout // 1000)}")
