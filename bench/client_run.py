"""One round of bench/client.py inside one client's own Python environment.

usage: client_run.py PACKAGE MODULE     PACKAGE: agent_sandbox or e2b; MODULE: a case below

Prints one JSON object: wall and cpu seconds (this process only) and what the case counts. Address and key come from
the environment, under the names that the client reads.
"""

import asyncio
import importlib
import json
import os
import resource
import sys
import time

SIZE = 100 * 1000 * 1000


def usage():
    own = resource.getrusage(resource.RUSAGE_SELF)
    return own.ru_utime + own.ru_stime


def rss_kib():
    with open("/proc/self/status", encoding="ascii") as status:
        return next(int(line.split()[1]) for line in status if line.startswith("VmRSS"))


class Clock:
    def __enter__(self):
        self.wall, self.cpu = time.perf_counter(), usage()
        return self

    def __exit__(self, *exc):
        self.wall, self.cpu = time.perf_counter() - self.wall, usage() - self.cpu

    def result(self, **more):
        return {"wall": self.wall, "cpu": self.cpu, **more}


def case_import(package):
    """Importing the package and what the first call needs, from a Python that has imported nothing of it."""
    before = rss_kib()
    with Clock() as clock:
        module = importlib.import_module(package)
    lazy = clock.result(rss_kib=rss_kib() - before)
    with Clock() as clock:
        module.Sandbox, module.AsyncSandbox  # lazy names are paid for here
    return {**lazy, "names_wall": clock.wall, "names_rss_kib": rss_kib() - before}


def with_sandbox(package, work):
    sandbox = importlib.import_module(package).Sandbox.create(template="base", timeout=600)
    try:
        sandbox.commands.run("true")  # connections, lazy imports
        return work(sandbox)
    finally:
        sandbox.kill()


def case_sequential(package):
    """1,000 times commands.run("true"), one after the other."""

    def work(sandbox):
        with Clock() as clock:
            for _ in range(1000):
                if sandbox.commands.run("true").exit_code != 0:
                    raise SystemExit("true failed")
        return clock.result()

    return with_sandbox(package, work)


def case_concurrent(package):
    """10 rounds of 100 commands at once in asyncio."""

    async def work():
        sandbox = await importlib.import_module(package).AsyncSandbox.create(template="base", timeout=600)
        try:
            await sandbox.commands.run("true")
            with Clock() as clock:
                for _ in range(10):
                    done = await asyncio.gather(*(sandbox.commands.run("true") for _ in range(100)))
                    if any(one.exit_code != 0 for one in done):
                        raise SystemExit("true failed")
            return clock.result()
        finally:
            await sandbox.kill()

    return asyncio.run(work())


def case_stdout(package):
    """100 MB of standard output of one command."""

    def work(sandbox):
        with Clock() as clock:
            result = sandbox.commands.run(f"head -c {SIZE} /dev/zero | tr '\\0' x", timeout=300, request_timeout=300)
        if len(result.stdout) != SIZE:
            raise SystemExit(f"{len(result.stdout)} bytes came")
        return clock.result()

    return with_sandbox(package, work)


def case_upload(package):
    """100 MB from memory into a file."""
    data = os.urandom(1000) * (SIZE // 1000)

    def work(sandbox):
        with Clock() as clock:
            sandbox.files.write("/tmp/data", data, request_timeout=300)
        if sandbox.commands.run("stat -c %s /tmp/data").stdout.strip() != str(SIZE):
            raise SystemExit("the file is not whole")
        return clock.result()

    return with_sandbox(package, work)


def case_download(package):
    """100 MB from a file into memory."""

    def work(sandbox):
        sandbox.commands.run(f"head -c {SIZE} /dev/urandom > /tmp/data", timeout=300)
        with Clock() as clock:
            data = sandbox.files.read("/tmp/data", format="bytes", request_timeout=300)
        if len(data) != SIZE:
            raise SystemExit(f"{len(data)} bytes came")
        return clock.result()

    return with_sandbox(package, work)


if __name__ == "__main__":
    print(json.dumps(globals()["case_" + sys.argv[2]](sys.argv[1])))
