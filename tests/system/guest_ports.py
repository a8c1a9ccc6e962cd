"""One port per guest of a test run, from the range of the guest's tests."""

import itertools
import os

FIRST = int(os.environ.get("ABX_GUEST_PORTS", "19400"))
PORTS = itertools.cycle(range(FIRST, FIRST + 100))
