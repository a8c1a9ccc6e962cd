"""What sandboxes use over time, on a real service: GET /sandboxes/{id}/metrics and /sandboxes/metrics."""

import time

import pytest
from envd import Envd
from service import Service


@pytest.mark.slow
def test_samples_come_within_seconds_and_tell_the_truth(build_dir, base_template):
    with Service(build_dir) as s:
        box = s.create(timeout=300, memoryMB=512, cpuCount=1)
        sandbox = box["sandboxID"]
        envd = Envd(s, box)
        envd.sh("nohup sh -c 'while :; do :; done' >&- 2>&- &")
        envd.sh("nohup python3 -c 'x = bytearray(100 << 20); import time; time.sleep(600)' >&- 2>&- &")

        def metrics(query=""):
            status, _, answer = s.request("GET", f"/sandboxes/{sandbox}/metrics{query}")
            assert status == 200, answer
            return answer

        deadline = time.monotonic() + 60
        while not (len(found := metrics()) >= 2 and found[-1]["memUsed"] > 100 << 20):
            assert time.monotonic() < deadline, found
            time.sleep(0.2)
        first, last = found[0], found[-1]
        assert set(first) == {"timestamp", "timestampUnix", "cpuCount", "cpuUsedPct", "memUsed", "memTotal", "memCache",
                              "diskUsed", "diskTotal"}
        assert last["cpuCount"] == 1 and 1 < last["cpuUsedPct"] <= 100
        assert last["memTotal"] == 512 << 20 and last["memUsed"] <= last["memTotal"] and last["diskTotal"] > 0
        assert all(m[k] >= 0 for m in found for k in ("cpuUsedPct", "memUsed", "memCache", "diskUsed"))
        # Windows; in bulk; paused ones have no more samples, and keep those they had.
        at = last["timestampUnix"]
        assert metrics(f"?start={at}&end={at}")[0] == last and metrics("?start=1&end=1000") == []
        assert s.request("GET", f"/sandboxes/{sandbox}/metrics?start=x")[0] == 400
        bulk = s.request("GET", f"/sandboxes/metrics?sandbox_ids={sandbox},i{'0' * 20}")[2]["sandboxes"]
        assert list(bulk) == [sandbox] and bulk[sandbox]["timestampUnix"] >= at
        assert s.request("GET", "/sandboxes/metrics")[0] == 400
        assert s.request("POST", f"/sandboxes/{sandbox}/pause")[0] == 204
        assert metrics()[0] == first
        assert s.kill(sandbox) == 204
        assert s.request("GET", f"/sandboxes/{sandbox}/metrics")[0] == 404
