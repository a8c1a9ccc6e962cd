"""Every method of every client that we promise to serve: run, expected table and docs/compatibility.md say the same.

script/compatibility runs this with ABX_COMPATIBILITY=write, which writes the page instead of comparing it.
"""

import os
from concurrent.futures import ThreadPoolExecutor

import compatibility as page
import pytest
from compatibility import COLUMNS, NOT_THERE
from service import Service

IS_WRITING = os.environ.get("ABX_COMPATIBILITY") == "write"


@pytest.fixture(scope="module")
def runs(request, build_dir, base_template, tools_dir, tmp_path_factory):
    """{title: [future of a program's rows]} of all columns that were selected, several at a time: most of it is waiting."""
    wanted = {item.callspec.params["column"] for item in request.session.items
              if item.module is request.module and hasattr(item, "callspec")}
    own = request.getfixturevalue("python_dir") if any(c.path == page.OWN for c in wanted) else None
    home = tmp_path_factory.mktemp("home")
    with Service(build_dir, "--pool", "base=2") as service, ThreadPoolExecutor(4) as threads:
        yield {
            c.title: [threads.submit(page.run_program, argv, tools_dir, page.environment(service, c, tools_dir, home, own), home)
                      for argv in c.runs]
            for c in COLUMNS if c in wanted
        }
        threads.shutdown(cancel_futures=True)
        for box in service.request("GET", "/v2/sandboxes")[2]:
            service.kill(box["sandboxID"])
        service.until_clean()


@pytest.fixture(scope="module")
def found():
    """{title: {row: cell}} of the columns that ran."""
    return {}


@pytest.mark.parametrize("column", [pytest.param(c, id=c.title.replace(" ", "-"), marks=pytest.mark.long if c.is_long else pytest.mark.slow)
                                    for c in COLUMNS])
def test_client(runs, found, column):
    wanted, kinds = page.expected()[column.section], []
    for future in runs[column.title]:
        rows, uncovered = future.result(timeout=570)
        assert uncovered == [], "public methods without a row"
        bad = {r: x for r, x in rows.items() if "failed" in x}
        assert not bad, bad
        cells = {r: page.word(x) for r, x in rows.items()}
        kinds.append(cells)
        for row, cell in cells.items():
            status = wanted.get(row, ("ok",))[0]
            assert cell == NOT_THERE or cell.split()[0] == status, f"{row}: {cell}, expected.txt says {status}"
    found[column.title] = page.merged(kinds)
    if not IS_WRITING:
        was = page.read_page().get(column.title, {})
        now = {row: found[column.title].get(row, NOT_THERE) for row in was} | found[column.title]
        assert was == now, "docs/compatibility.md is out of date: run script/compatibility"


def test_page_is_whole_and_agrees_with_the_table(found):
    if IS_WRITING:
        page.PAGE.write_text(page.page(found))
    cells = page.read_page()
    assert page.PAGE.read_text() == page.page(cells), "docs/compatibility.md is not as script/compatibility writes it"
    for section, wanted in page.expected().items():
        columns = [c.title for c in COLUMNS if c.section == section]
        rows = cells[columns[0]]
        assert len({tuple(cells[c]) for c in columns}) == 1, "every column has every row"
        unknown = set(wanted) - set(rows)
        assert not unknown, "expected.txt names rows that do not exist"
        for row in rows:
            told = {word.split()[0] for c in columns for word in page.kinds(cells[c][row])} - {NOT_THERE}
            assert told == {wanted.get(row, ("ok",))[0]}, (row, told)
