#!/bin/sh
# Runs on the host after all packages are in: setup.sh ROOTFS WORK.
# Makes what a package does not: the user, the writable folders, the shell's start files, the locale.
set -eu
root=$1
work=$2
here=$(cd "$(dirname "$0")" && pwd)

echo "I: user, shell and locale"
install -m 644 "$here/profile" "$root/etc/profile"
install -m 644 "$here/skel.profile" "$root/etc/skel/.profile"
install -m 644 "$here/skel.profile" "$root/root/.profile"
install -m 644 "$here/dpkg.cfg" "$root/etc/dpkg/dpkg.cfg.d/abx-template"
printf 'LANG=C.UTF-8\n' >"$root/etc/default/locale"
printf 'LANG=C.UTF-8\n' >>"$root/etc/environment"

# Ubuntu 24.04 ships a user of its own under uid 1000.
if taken=$(awk -F: '$3 == 1000 && $1 != "user" { print $1 }' "$root/etc/passwd") && [ -n "$taken" ]; then
    chroot "$root" userdel --remove "$taken"
fi
if ! grep -q '^user:' "$root/etc/passwd"; then
    chroot "$root" useradd --create-home --uid 1000 --user-group --groups sudo --shell /bin/bash user
fi
printf 'user ALL=(ALL:ALL) NOPASSWD: ALL\n' >"$root/etc/sudoers.d/user"
chmod 440 "$root/etc/sudoers.d/user"
chroot "$root" /usr/sbin/visudo --check --quiet

mkdir -p "$root/code"
chown 1000:1000 "$root/code"
chmod 777 "$root/code"

printf '127.0.0.1\tlocalhost\n::1\tlocalhost ip6-localhost ip6-loopback\n' >"$root/etc/hosts"
printf 'sandbox\n' >"$root/etc/hostname"
: >"$root/etc/machine-id"
# The machine's archives as sources.sh left them, with the key that the template itself has.
keyring=$(cd "$root" && ls usr/share/keyrings/*-archive-keyring.gpg usr/share/keyrings/*-archive-keyring.pgp \
    2>/dev/null | head -n 1)
rm -f "$root"/etc/apt/sources.list.d/*
sed "s|^deb |deb [signed-by=/$keyring] |" "$work/template.list" >"$root/etc/apt/sources.list"

rm -f "$root/etc/resolv.conf"
: >"$root/etc/resolv.conf"
