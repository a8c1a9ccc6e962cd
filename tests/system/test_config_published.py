"""Layers of the configuration, compared with agent-sandbox-client 0.4.0a6 over random files and variables.

What differs on purpose (docs/configuration.md) is left out here: malformed values, a base URL without a domain,
http_timeout's default, E2B_ names, profiles, the local service.
"""

import json
import os
import random
import subprocess

from waiting import BUSY_S

SEED = 20261130
CASES = 250

PEER = """
import json, os, sys
from pathlib import Path
import agent_sandbox.transport.config as module
from agent_sandbox.transport.config import explain_config, load_config, reset_config
keys = sys.argv[1].split(",")
base, answers = dict(os.environ), []
for case in json.load(sys.stdin):
    os.environ.clear()
    os.environ.update(base, HOME=case["home"], **case["env"])
    os.chdir(case["work"])
    folder = Path(case["home"], ".abx")  # found once, when the module is loaded
    module._CONFIG_FILE, module._ENV_FILE_CANDIDATES = folder / "config.toml", [Path(".env"), folder / ".env"]
    reset_config()
    config, explained = load_config(), explain_config()
    answer = {k: getattr(config, k) if hasattr(config, k) else explained[k]["value"] for k in keys}
    answers.append({k: v.get_secret_value() if hasattr(v, "get_secret_value") else v for k, v in answer.items()})
json.dump(answers, sys.stdout)
"""

VALUES = {
    "sandbox_api_key": ["k1", "k2", "e2b_3"],
    "sandbox_domain": ["a.test", "b.test:8443"],
    "sandbox_base_url": ["https://api.c.test", "http://127.0.0.1:8490"],
    "http2": ["true", "off", "0", "YES"],
    "http_timeout": ["7", "1.5"],
    "max_connections": ["5", "7.0"],
    "default_template": ["t1", "code interpreter"],
    "region": ["cn-beijing", "cn-hangzhou"],
}
ENV = {key: "ABX_" + key.upper() for key in VALUES} | {"region": "ALIBABA_CLOUD_REGION_ID"}
SCOPED = ("sandbox_api_key", "sandbox_base_url", "sandbox_domain")


def draw_variables(draw):
    """Some variables with values, blank ones and scoped names among them."""
    chosen = {}
    for key, values in VALUES.items():
        if draw.random() < 0.25:
            chosen[ENV[key]] = draw.choice([*values, *values, "", "  "])
        if key in SCOPED and draw.random() < 0.1:
            chosen["ABX_ALICLOUD_EXPRESS_" + key.upper()] = draw.choice(values)
    return chosen


def toml_table(draw, name, chance):
    values = VALUES | {"http2": [True, False], "http_timeout": [7, 1.5], "max_connections": [5, 9]}
    rows = [f"{key} = {json.dumps(draw.choice(values[key]))}\n" for key in values
            if key != "sandbox_api_key" and draw.random() < chance]  # fmt: skip
    return f"[{name}]\n" + "".join(rows)


def quoted(draw, value):
    return draw.choice([f"'{value}'", f'"{value}"', f"{value} # comment"])


def draw_case(draw, folder):
    home, work = folder / "home", folder / "work"
    (home / ".abx").mkdir(parents=True)
    work.mkdir()
    for path in (work / ".env", home / ".abx/.env"):
        if draw.random() < 0.6:
            lines = [draw.choice(["", "export "]) + f"{k}={quoted(draw, v)}\n" for k, v in draw_variables(draw).items()]
            path.write_text("".join(lines))
    if draw.random() < 0.6:
        tables = [toml_table(draw, "transport", 0.4)]
        if draw.random() < 0.4:
            tables.append(toml_table(draw, "providers.alicloud-express", 0.3))
        draw.shuffle(tables)
        (home / ".abx/config.toml").write_text("\n".join(tables))
    return {"home": str(home), "work": str(work), "env": draw_variables(draw) if draw.random() < 0.7 else {}}


def ours(build_dir, case):
    env = {"PATH": os.environ["PATH"], "HOME": case["home"], "ABX_LOCAL_DIR": "/nonexistent", **case["env"]}
    run = subprocess.run(
        [build_dir / "abx", "config", "list", "--json", "--reveal"],
        env=env, cwd=case["work"], capture_output=True, text=True, timeout=BUSY_S,
    )  # fmt: skip
    assert run.returncode == 0, (case, run.stderr)
    return json.loads(run.stdout)


def value_of(text, like):
    """Our text as the type that the published client has."""
    if text is None or isinstance(like, str):
        return text
    if isinstance(like, bool):
        return text.lower() in ("true", "1", "yes", "on")
    return None if like is None else type(like)(float(text))


def is_different(key, origin):
    """On purpose. The base URL that follows from a domain is what their standard classes make of it, later."""
    return (
        origin == "from sandbox_base_url"
        or (key == "sandbox_base_url" and origin == "from sandbox_domain")
        or (key == "http_timeout" and origin == "default")
    )


def test_layers(build_dir, tools_dir, tmp_path):
    draw = random.Random(SEED)
    cases = [draw_case(draw, tmp_path / f"case{i}") for i in range(CASES)]
    peer = subprocess.run(
        [tools_dir / "agent-sandbox-client-0.4.0a6/bin/python", "-c", PEER, ",".join(VALUES)],
        input=json.dumps(cases), stdout=subprocess.PIPE, text=True, check=True, timeout=200,
        env={"PATH": os.environ["PATH"], "PYTHONDONTWRITEBYTECODE": "1"},
    )  # fmt: skip
    explicit = 0
    for case, theirs in zip(cases, json.loads(peer.stdout), strict=True):
        mine = ours(build_dir, case)
        for key in VALUES:
            if is_different(key, mine[key]["origin"]):
                continue
            explicit += mine[key]["origin"] not in (None, "default")
            assert value_of(mine[key]["value"], theirs[key]) == theirs[key], (key, mine[key], theirs[key], case)
    assert explicit > CASES
