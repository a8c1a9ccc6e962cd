"""The life of a sandbox as abx-control leads it, with a played engine: events, and requests in order."""

import pytest
from control_harness import Control
from waiting import until


@pytest.fixture
def control(build_dir, tmp_path):
    c = Control(build_dir, tmp_path)
    yield c
    c.close()
    assert "runtime error" not in (tmp_path / "log").read_text()


def events(control, sandbox="", query="orderAsc=true&limit=100"):
    answer = control.ask("GET", f"/events/sandboxes{'/' if sandbox else ''}{sandbox}?{query}")
    assert answer.status == 200, answer.message
    return answer.json


def test_every_step_is_an_event(control):
    first = control.create()
    one = first["sandboxID"]
    assert control.ask("POST", f"/sandboxes/{one}/timeout", {"timeout": 77}).status == 204
    two = control.create()["sandboxID"]
    assert control.ask("DELETE", f"/sandboxes/{one}").status == 204
    control.engine.die(two, "oom")
    until(lambda: control.ids() == [])
    until(lambda: len(events(control)) == 5)

    created, updated, killed = events(control, one)
    assert [e["type"].removeprefix("sandbox.lifecycle.") for e in (created, updated, killed)] == ["created", "updated", "killed"]
    for event in (created, updated, killed):
        assert event["version"] == "v1" and event["sandboxId"] == one and event["sandboxExecutionId"] == f"x-{one}"
        assert event["sandboxTemplateId"] == first["templateID"] and event["sandboxBuildId"] and event["sandboxTeamId"]
        assert event["timestamp"].endswith("Z")
    assert len({e["id"] for e in events(control)}) == 5
    assert {s["name"] for s in created["eventData"]["stages"]} == {"row", "driver", "clone"}
    assert list(updated["eventData"]) == ["set_timeout"]
    assert killed["eventData"]["reason"] == "request"
    assert [s["name"] for s in killed["eventData"]["stages"]] == ["killing"]
    assert events(control, two)[-1]["eventData"]["reason"] == "oom"

    newest = [e["id"] for e in events(control, query="")]
    assert newest == [e["id"] for e in reversed(events(control))]
    assert [e["id"] for e in events(control, query="limit=2&offset=1")] == newest[1:3]
    assert events(control, "i" + "0" * 20) == []
    # They are on disk.
    control.restart()
    assert [e["id"] for e in events(control, query="")] == newest


@pytest.mark.parametrize("query, word", [("limit=0", "limit"), ("limit=101", "limit"), ("offset=-1", "offset"),
                                         ("orderAsc=yes", "orderAsc"), ("limit=%zz", "percent-encoded")])
def test_bad_queries_are_named(control, query, word):
    answer = control.ask("GET", f"/events/sandboxes?{query}")
    assert answer.status == 400 and word in answer.message


def test_a_driver_that_stays_away_is_a_warning(control, tmp_path):
    """Its end alone is none: it is told elsewhere, and part of each stop."""
    control.engine.stop()
    until(lambda: 'info control msg="driver is down"' in (tmp_path / "log").read_text())
    until(lambda: 'warn control msg="driver does not come back' in (tmp_path / "log").read_text())
    control.engine.start()
    control.wait_up()
