"""Waits for what only polling shows, as long as a machine with other work may take.

A condition that comes about is seen at once, so the bound costs time only where a test fails: it guards against a hang
and says nothing about the product. What must happen within a time of the product's own is no matter for it.
"""

import time

BUSY_S = 90  # for what takes a second or less on an idle machine


def until(condition, what="", timeout=BUSY_S, step=0.02):
    """The first true value that condition() comes to. `what` it is may be a function, which is asked when it fails."""
    end = time.monotonic() + timeout
    while not (value := condition()):
        if time.monotonic() >= end:
            raise AssertionError(f"not within {timeout} s: {(what() if callable(what) else what) or 'the condition'}; last it was {value!r}")
        time.sleep(step)
    return value


def again(function, errors, timeout=BUSY_S, step=0.05):
    """What function() returns as soon as it raises none of the errors: for what is away for a while."""
    end = time.monotonic() + timeout
    while True:
        try:
            return function()
        except errors as e:
            if time.monotonic() >= end:
                raise AssertionError(f"not within {timeout} s; last it was {e!r}") from e
        time.sleep(step)
