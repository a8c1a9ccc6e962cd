#!/usr/bin/env python3
"""Counts test cases in junit files (meson's and pytest's).

usage: count_results.py FILE...     prints `N passed, N failed, N skipped`; a file that is missing or broken is one failure
       count_results.py --failed FILE   prints the failed cases as pytest takes them, one on each line (junit_family=xunit1)
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


def failed_names(name):
    """file::class::function[parameters] of each failed case, once; none for a file that is missing or broken."""
    try:
        root = ET.parse(name).getroot()
    except (OSError, ET.ParseError):
        return []
    names = {}
    for case in root.iter("testcase"):
        if {child.tag for child in case} & {"failure", "error"} and case.get("file"):
            path = case.get("file")
            module = path.removesuffix(".py").replace("/", ".")
            classes = case.get("classname").removeprefix(module).split(".")[1:]
            names["::".join([path, *classes, case.get("name")])] = True
    return list(names)


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
        names = Path(folder, "names.xml")
        names.write_text(
            '<testsuites><testsuite name="pytest"><testcase classname="t.test_a" file="t/test_a.py" name="test_x[a b]"><failure/>'
            '</testcase><testcase classname="t.test_a.TestC" file="t/test_a.py" name="test_y"><error/></testcase>'
            '<testcase classname="t.test_a" file="t/test_a.py" name="test_z"/></testsuite></testsuites>'
        )
        listed = failed_names(names) + failed_names(broken)
    if got != [2, 4, 1]:
        print(f"counted {got}, not [2, 4, 1]")
        return 1
    if listed != ["t/test_a.py::test_x[a b]", "t/test_a.py::TestC::test_y"]:
        print(f"failed ones: {listed}")
        return 1
    return 0


def main():
    if sys.argv[1:] == ["--self-test"]:
        return self_test()
    if sys.argv[1:2] == ["--failed"]:
        for name in failed_names(sys.argv[2]):
            print(name)
        return 0
    print("%d passed, %d failed, %d skipped" % tuple(count_files(sys.argv[1:])))
    return 0


if __name__ == "__main__":
    sys.exit(main())
