"""pytest plugin: one TAP line per test on standard output, for tests that run where nobody can fetch a report."""

import os

count = 0
PREFIX = os.environ.get("TAP_PREFIX", "")


def pytest_runtest_logreport(report):
    global count
    if report.when == "call" or (report.when == "setup" and not report.passed) or (report.when == "teardown" and report.failed):
        count += 1
        word = "not ok" if report.failed else "ok"
        skip = " # SKIP" if report.skipped else ""
        print(f"\n{word} - {PREFIX}{report.nodeid.rpartition('::')[2]} ({report.duration:.1f} s){skip}", flush=True)
        if report.failed:
            for line in str(report.longrepr).splitlines()[-40:]:
                print("# " + line)
