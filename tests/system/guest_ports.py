"""One port per guest of a test run, from the range of the guest's tests; each process of a parallel run has its own."""

import itertools
import os

FIRST = int(os.environ.get("ABX_GUEST_PORTS", "19400")) + 100 * int(os.environ.get("PYTEST_XDIST_WORKER", "gw0")[2:])
PORTS = itertools.cycle(range(FIRST, FIRST + 100))
