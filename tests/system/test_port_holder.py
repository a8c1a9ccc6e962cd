"""abx serve names who holds the port that it was given, on a machine with very many connections too. Needs root."""

import os
import subprocess
import sys

# In a network namespace of its own: 56,000 closed connections, which the kernel lists for a minute (some 8 MB of text).
CROWD = """
import os, socket, subprocess, sys
with open("/proc/sys/net/ipv4/ip_local_port_range", "w") as f:
    f.write("1024 65000")
for port in (9000, 9001):
    listener = socket.create_server(("127.0.0.1", port), backlog=100)
    os.set_inheritable(listener.fileno(), False)
    for _ in range(28000):
        end = socket.create_connection(("127.0.0.1", port))
        other, _ = listener.accept()
        end.close()
        other.close()
    globals()[f"held{port}"] = listener
assert os.path.getsize("/proc/net/tcp") == 0 and len(open("/proc/net/tcp").read()) > 5 << 20
run = subprocess.run(sys.argv[1:], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=60)
print(os.getpid(), run.returncode, run.stdout)
"""


def test_a_taken_port_names_its_holder_among_many_connections(build_dir, tmp_path):
    serve = [build_dir / "abx", "serve", "--listen", "127.0.0.1:9000", "--data-dir", tmp_path / "data"]
    script = 'ip link set lo up && exec "$0" "$@"'
    run = subprocess.run(
        ["unshare", "-n", "sh", "-c", script, sys.executable, "-c", CROWD, *serve],
        stdout=subprocess.PIPE,
        text=True,
        timeout=120,
        check=True,
        env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1"},
    )
    pid, code, text = run.stdout.split(" ", 2)
    assert code != "0" and f"process {pid} (python" in text, run.stdout
