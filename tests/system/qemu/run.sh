#!/bin/sh
# Runs inside the virtual machine, from its second disk (/mnt, read-only). One TAP line per check on the console.
export LD_LIBRARY_PATH= PYTHONDONTWRITEBYTECODE=1

check() {
    name=$1
    shift
    if out=$("$@" 2>&1); then
        echo "ok - $name"
    else
        echo "not ok - $name"
        echo "$out" | tail -n 40 | sed 's/^/# /'
    fi
}

# Programs and libraries that the base template lacks; its own stay.
cp -n /mnt/lib/* /usr/lib/x86_64-linux-gnu/
cp -n /mnt/sbin/* /usr/sbin/
ldconfig
mkdir -p /var/tmp /tmp
ulimit -n 65536

echo "# $(uname -r), $(nproc) processors, $(sed -n 's/MemTotal: *//p' /proc/meminfo)"
tool=/mnt/build/tests/tools/limits_tool
"$tool" --probe --text --data-dir /var/tmp/data | sed 's/^/# /'
check "probe: sandboxes can run" "$tool" --probe --data-dir /var/tmp/data

for part in /mnt/parts/*.sh; do
    [ -e "$part" ] && . "$part"
done

cd /mnt/tests/system || exit 1
ABX_BUILD=/mnt/build TAP_PREFIX="limits: " PYTHONPATH=/mnt/py:/mnt/tests/system/qemu \
    python3 -m pytest -q -p pytest_timeout -p tap_plugin -p no:cacheprovider test_limits.py 2>&1 | sed -E '/^(ok|not ok|#)/!s/^/# /'
echo "# done"
