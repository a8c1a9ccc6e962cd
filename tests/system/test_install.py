"""`meson install` puts every program where the others look for it."""

import os
import subprocess
from pathlib import Path

import sanitizers
from conftest import ROOT
from waiting import BUSY_S


def is_elf(path):
    with open(path, "rb") as f:
        return f.read(4) == b"\x7fELF"


def says_where_it_was_built(program, build_dir):
    data = program.read_bytes()
    return any(str(folder).encode() + b"/" in data or str(folder).encode() + b"\0" in data for folder in (ROOT, build_dir.resolve()))


def test_no_program_says_where_it_was_built(build_dir):
    sanitizers.skip_sanitized(build_dir, "its programs have the path of their log")
    programs = [p for p in build_dir.rglob("*") if p.is_file() and os.access(p, os.X_OK) and is_elf(p)]
    assert {"abx", "abx-engine", "abx-guest", "test_base_buf"} <= {p.name for p in programs}
    assert [p for p in programs if says_where_it_was_built(p, build_dir)] == []


def test_installed_tree(build_dir, tmp_path):
    subprocess.run(
        ["/usr/bin/meson", "install", "-C", build_dir, "--no-rebuild"],
        env={**os.environ, "DESTDIR": str(tmp_path)}, check=True, stdout=subprocess.DEVNULL, timeout=60)
    files = {str(p.relative_to(tmp_path / "usr/local")) for p in tmp_path.rglob("*") if p.is_file()}
    assert {"bin/abx", "share/man/man1/abx.1", "share/man/man1/abx-sandbox.1", "share/zsh/site-functions/_abx",
            "share/bash-completion/completions/abx", "share/fish/vendor_completions.d/abx.fish"} | {
        f"libexec/abx/abx-{role}" for role in ("client", "control", "engine", "gateway", "guest")} <= files
    recipe = {f for f in files if f.startswith("share/abx/template/base/")}
    assert {f.rsplit("/", 1)[1] for f in recipe} >= {"packages", "setup.sh", "finish.sh", "sources.sh"}
    # lib, not lib64: there ld.so and pkg-config look on every distribution that is supported.
    assert {f for f in files if f.endswith(".a")} == {"lib/libabx.a"} and "lib/pkgconfig/libabx.pc" in files, \
        "a build from before? meson configure -Dlibdir=lib"
    assert {f for f in files if f.endswith(".h")} == {f"include/abx/{h.name}" for h in (ROOT / "include/abx").glob("*.h")}
    assert not [f for f in files if "test" in f or "tool" in f]
    for program in (p for p in tmp_path.rglob("*") if p.is_file() and is_elf(p)):
        sections = subprocess.run(["/usr/bin/readelf", "-SW", program], capture_output=True, text=True, check=True).stdout
        assert ".debug_info" not in sections, f"{program}: not stripped (a build from before? meson configure -Dstrip=true)"
        assert sanitizers.of_build(build_dir) or not says_where_it_was_built(program, build_dir), program
    helped = subprocess.run([tmp_path / "usr/local/bin/abx", "version"], capture_output=True, text=True, timeout=BUSY_S)
    assert helped.stdout.startswith("abx ")
    # It runs where it lies, as long as nobody else could have put a program there.
    libexec = tmp_path / "usr/local/libexec/abx"

    def doctor():
        return subprocess.run([tmp_path / "usr/local/bin/abx", "doctor"], capture_output=True, text=True, timeout=60)

    assert doctor().returncode == 0 and "Sandboxes can run" in doctor().stdout
    for path in (libexec, libexec / "abx-engine"):
        mode = path.stat().st_mode & 0o777
        for change, back in ((lambda: path.chmod(mode | 0o020), lambda: path.chmod(mode)),
                             (lambda: path.chmod(mode | 0o002), lambda: path.chmod(mode)),
                             (lambda: os.chown(path, 65534, 65534), lambda: os.chown(path, 0, 0))):
            change()
            lost = doctor()
            back()
            if not Path("/usr/local/libexec/abx/abx-engine").exists():
                assert lost.returncode == 4 and "beside" in lost.stderr and "/usr/local/libexec/abx" in lost.stderr, lost
    assert doctor().returncode == 0


def test_a_program_of_others_links_with_what_is_installed(build_dir, tmp_path):
    sanitizers.skip_sanitized(build_dir, "a program that links its libabx has to have them, too")
    subprocess.run(
        ["/usr/bin/meson", "install", "-C", build_dir, "--no-rebuild"],
        env={**os.environ, "DESTDIR": str(tmp_path)}, check=True, stdout=subprocess.DEVNULL, timeout=60)
    package = next(tmp_path.rglob("libabx.pc"))
    prefix = tmp_path / "usr/local"
    env = {**os.environ, "PKG_CONFIG_PATH": str(package.parent), "HOME": str(tmp_path), "E2B_API_URL": "http://127.0.0.1:1",
           "E2B_API_KEY": "k"}
    libdir = package.parent.parent

    def flags(*args):
        command = ["pkg-config", f"--define-variable=prefix={prefix}", *args]
        return subprocess.run(command, env=env, capture_output=True, text=True, check=True, timeout=BUSY_S).stdout.split()

    assert flags("--modversion", "libabx") == ["0.1.0"]
    static = flags("--cflags", "libabx") + [f"-L{libdir}", "-l:libabx.a"]
    static += flags("--libs", "libcurl", "jansson", "nettle", "zlib")
    for name, used in (("shared", flags("--cflags", "--libs", "libabx")), ("static", static)):
        program = tmp_path / name
        subprocess.run(["cc", ROOT / "examples/quickstart.c", "-o", program, *used], check=True, timeout=60)
        linked = subprocess.run(["readelf", "-d", program], capture_output=True, text=True, check=True).stdout
        assert ("[libabx.so.0]" in linked) == (name == "shared") and "protobuf" not in linked
        run = subprocess.run([program], env={**env, "LD_LIBRARY_PATH": str(libdir)}, capture_output=True, text=True, timeout=60)
        assert run.returncode == 1 and run.stderr.startswith("quickstart: unavailable: 127.0.0.1:1: connect"), run
