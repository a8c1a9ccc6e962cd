"""`meson install` puts every program where the others look for it."""

import os
import subprocess


def test_installed_tree(build_dir, tmp_path):
    subprocess.run(
        ["/usr/bin/meson", "install", "-C", build_dir, "--no-rebuild"],
        env={**os.environ, "DESTDIR": str(tmp_path)}, check=True, stdout=subprocess.DEVNULL, timeout=60)
    files = {str(p.relative_to(tmp_path / "usr/local")) for p in tmp_path.rglob("*") if p.is_file()}
    assert {"bin/abx", "share/man/man1/abx.1"} | {
        f"libexec/abx/abx-{role}" for role in ("control", "engine", "gateway", "guest")} <= files
    recipe = {f for f in files if f.startswith("share/abx/template/base/")}
    assert {f.rsplit("/", 1)[1] for f in recipe} >= {"packages", "setup.sh", "finish.sh", "sources.sh"}
    assert not {f for f in files if f.endswith((".a", ".h"))} and not [f for f in files if "test" in f or "tool" in f]
    helped = subprocess.run([tmp_path / "usr/local/bin/abx", "version"], capture_output=True, text=True, timeout=10)
    assert helped.stdout.startswith("abx ")
    # Its programs are looked for in the prefix that it was built for, and the message says so.
    lost = subprocess.run([tmp_path / "usr/local/bin/abx", "doctor"], capture_output=True, text=True, timeout=60)
    assert lost.returncode in (0, 1) or (lost.returncode == 4 and "/usr/local/libexec/abx" in lost.stderr)
