#!/usr/bin/env python3
"""Counts test cases in junit files (meson's and pytest's).

usage: count_results.py FILE...     prints `N passed, N failed, N skipped`; a file that is missing or broken is one failure
       count_results.py --self-test
"""

import sys
import tempfile
import xml.etree.ElementTree as ET
from pathlib import Path


def count_suite(suite):
    passed = failed = skipped = 0
    for case in suite.findall("testcase"):
        kinds = {child.tag for child in case}
        if kinds & {"failure", "error"}:
            failed += 1
        elif "skipped" in kinds:
            skipped += 1
        else:
            passed += 1
    # A program that dies before its first case leaves only numbers in the suite's own attributes.
    claimed = int(suite.get("failures", 0)) + int(suite.get("errors", 0))
    return passed, max(failed, claimed), skipped


def count_files(names):
    total = [0, 0, 0]
    for name in names:
        try:
            root = ET.parse(name).getroot()
        except (OSError, ET.ParseError):
            total[1] += 1
            continue
        for suite in root.iter("testsuite"):
            total = [a + b for a, b in zip(total, count_suite(suite))]
    return total


def self_test():
    text = (
        '<testsuites><testsuite name="a" errors="0" failures="1"><testcase name="1"/><testcase name="2"><failure/>'
        '</testcase><testcase name="3"><skipped/></testcase></testsuite><testsuite name="b" errors="1" failures="0">'
        '</testsuite><testsuite name="c"><testcase name="4"><system-out>x</system-out></testcase></testsuite></testsuites>'
    )
    with tempfile.TemporaryDirectory() as folder:
        whole, broken = Path(folder, "whole.xml"), Path(folder, "broken.xml")
        whole.write_text(text)
        broken.write_text("<testsuites>")
        got = count_files([whole, broken, Path(folder, "missing.xml")])
    if got != [2, 4, 1]:
        print(f"counted {got}, not [2, 4, 1]")
        return 1
    return 0


def main():
    if sys.argv[1:] == ["--self-test"]:
        return self_test()
    print("%d passed, %d failed, %d skipped" % tuple(count_files(sys.argv[1:])))
    return 0


if __name__ == "__main__":
    sys.exit(main())
