#!/bin/sh
# Runs on the host, last: finish.sh ROOTFS. Opens /usr/local to every user and drops what the build left.
set -eu
root=$1

chmod -R a+rwX "$root/usr/local"
rm -rf "$root"/var/lib/apt/lists/* "$root"/var/cache/apt/* "$root"/var/cache/debconf/*-old \
    "$root"/var/cache/ldconfig/* "$root"/var/lib/dpkg/*-old "$root"/tmp/* "$root"/var/tmp/* \
    "$root"/run/* "$root"/usr/share/man/* "$root"/usr/share/info/* "$root"/etc/apt/apt.conf.d/*abx-build* \
    "$root"/etc/apt/apt.conf.d/99mmdebstrap "$root"/etc/dpkg/dpkg.cfg.d/99mmdebstrap "$root"/etc/*- "$root"/root/.cache
find "$root/var/log" -type f -delete
chmod 1777 "$root/tmp" "$root/var/tmp"
