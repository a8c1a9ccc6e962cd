"""The official Python SDK against the service that E2B_API_URL and E2B_SANDBOX_URL name."""

import time

from e2b import Sandbox

began = time.perf_counter()
sandbox = Sandbox.create()
print(f"sandbox {sandbox.sandbox_id} is ready after {(time.perf_counter() - began) * 1000:.0f} ms")
try:
    result = sandbox.commands.run("echo hello from $(hostname); id -un; nproc; python --version; node --version")
    print(result.stdout, end="")

    sandbox.files.write("/home/user/greeting.txt", "written from outside\n")
    print(sandbox.files.read("/home/user/greeting.txt"), end="")

    began = time.perf_counter()
    sandbox.commands.run("true")
    print(f"a command takes {(time.perf_counter() - began) * 1000:.1f} ms there and back")
finally:
    print("killed:", sandbox.kill())
