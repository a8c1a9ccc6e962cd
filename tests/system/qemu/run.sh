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
# For what pushes memory of paused sandboxes out.
dd if=/dev/zero of=/var/tmp/swap bs=1M count=384 2>/dev/null && chmod 0600 /var/tmp/swap && mkswap /var/tmp/swap >/dev/null
check "machine: swap" swapon /var/tmp/swap
tool=/mnt/build/tests/tools/limits_tool
"$tool" --probe --text --data-dir /var/tmp/data | sed 's/^/# /'
check "machine: sandboxes can run" "$tool" --probe --data-dir /var/tmp/data

# The base template as a template: the disk that is root here, once more, unchanged.
template=/var/cache/abx/templates/$(cat /mnt/template/name)
mkdir -p "$template/rootfs"
chmod 0700 /var/cache/abx/templates # as the builder makes it
cp /mnt/template/template.json "$template"
check "template: mounted" mount -o ro,noload /dev/vdc "$template/rootfs"

sandbox() {
    /mnt/build/tests/tools/sandbox_run --layer "$template/rootfs" --work /var/tmp/uppers "$@"
}
check "sandbox: layers by path" sandbox --mount string -- /bin/sh -c 'id && test "$(id -u)" = 0 && echo x >/root/x'
check "sandbox: with cgroups" sandbox --cgroups qemu -- /usr/bin/python3 -c 'import os; os.listdir("/sys/fs/cgroup/user")'
check "sandbox: twenty" sandbox --cgroups qemu --count 20
by_fd() {
    ! sandbox --mount fd -- /bin/true
}
check "sandbox: layers by descriptor are refused with a reason" by_fd

cd /mnt/tests/system || exit 1
export ABX_BUILD=/mnt/build ABX_BASE_TEMPLATE="$template" PYTHONPATH=/mnt/py:/mnt/tests/system/qemu
while read -r file only; do
    TAP_PREFIX="$file: " python3 -m pytest -q -p pytest_timeout -p tap_plugin -p no:cacheprovider -m "not slow and not long" -k "$only" \
        "test_$file.py" </dev/null 2>&1 | sed -E '/^(ok|not ok|#)/!s/^/# /'
done </mnt/inside
echo "# done"
