#!/bin/sh
# Runs on the host, first: sources.sh WORK ID RELEASE KEYRING.
# Asks each entry of WORK/candidates ("URI SUITE PUBLIC-URI COMPONENTS...") for its Release file, by apt itself
# with the machine's proxies but only with the distribution's KEYRING, and keeps those that the archive's key
# signed and that name the origin ID and the wanted RELEASE. Writes, all in WORK:
#   apt.conf        the machine's proxies and the like, for the time of the build
#   sources.list    for mmdebstrap; like apt.conf it may hold credentials and stays in WORK
#   template.list   the same archives for the template, without credentials
set -eu
work=$1
id=$2
release=$3
keyring=$4
apt=$work/apt

apt-config dump --format '%F "%v";%n' |
    grep -iE '^Acquire::((http|https|ftp)::|Check-Date |Check-Valid-Until |ForceIPv[46] |Retries )' \
        >"$work/apt.conf" || true
cat >>"$work/apt.conf" <<END
Dir::Etc::netrc "/etc/apt/auth.conf";
Dir::Etc::netrcparts "/etc/apt/auth.conf.d";
Acquire::Languages "none";
END

# A private apt that knows nothing of the machine's entries and keys.
mkdir -p "$apt/etc/apt/apt.conf.d" "$apt/etc/apt/preferences.d" "$apt/etc/apt/sources.list.d" \
    "$apt/etc/apt/trusted.gpg.d" "$apt/cache/archives/partial"
: >"$apt/status"
cat - "$work/apt.conf" >"$apt/apt.conf" <<END
Dir "$apt";
Dir::Etc "etc/apt";
Dir::Cache "cache";
Dir::State "state";
Dir::State::status "$apt/status";
APT::Sandbox::User "root";
Acquire::IndexTargets::deb::Packages::DefaultEnabled "false";
Acquire::IndexTargets::deb::Translations::DefaultEnabled "false";
END
: >"$work/sources.list"
: >"$work/template.list"

# Where a mirror list on this machine's disk stands for the URI, the template gets its first mirror.
public_of() {
    case $1 in
        mirror+file:*) sed -n 's/^\([a-z]*:[^[:space:]]*\).*/\1/p' "${1#mirror+file:}" | head -n 1 ;;
        http:* | https:* | ftp:*) echo "$1" ;;
    esac
}

while read -r uri suite public components; do
    rm -rf "$apt/state"
    mkdir -p "$apt/state/lists/partial"
    entry="deb [signed-by=$keyring] $uri $suite $components"
    echo "$entry" >"$apt/etc/apt/sources.list"
    APT_CONFIG=$apt/apt.conf apt-get update >"$apt/log" 2>&1 || true
    file=$(find "$apt/state/lists" -maxdepth 1 -name '*Release' | head -n 1)
    if [ -z "$file" ]; then
        if grep -qE 'NO_PUBKEY|not signed|GPG error|OpenPGP signature verification failed' "$apt/log"; then
            echo "I: left out $public $suite: not signed by the $id archive"
        elif [ "$suite" != "$release" ] && grep -q 'does not have a Release file' "$apt/log"; then
            echo "I: left out $public $suite: there is no such suite"
        else
            # Not left out: without it security updates could be missing and nobody would know.
            sed -n 's/^[EW]: /E: /p' "$apt/log" | head -n 3
            exit 1
        fi
        continue
    fi
    origin=$(sed -n 's/^Origin: //p' "$file" | head -n 1 | tr '[:upper:]' '[:lower:]')
    codename=$(sed -n 's/^Codename: //p' "$file" | head -n 1)
    if [ "$origin" != "$id" ] || { [ "$codename" != "$release" ] && [ "$codename" != "$suite" ]; }; then
        echo "I: left out $public $suite: it is $origin $codename"
        continue
    fi
    echo "$entry" >>"$work/sources.list"
    mirror=$(public_of "$public")
    [ -z "$mirror" ] || echo "deb $mirror $suite $components" >>"$work/template.list"
done <"$work/candidates"

if ! grep -q " $release " "$work/sources.list"; then
    echo "E: no entry in /etc/apt is the $id archive of $release"
    exit 1
fi
