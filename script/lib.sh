# Sourced by the scripts beside it (bash). Progress lines, packages, bounded steps, the release build.
# Nothing here uses a program outside /usr/sbin:/usr/bin:/sbin:/bin or any git command.

ROOT=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
LOGS=$ROOT/build/logs
START=$SECONDS

# Only what apt installs is used; a step that is to see the caller's PATH says so.
BARE_PATH=/usr/sbin:/usr/bin:/sbin:/bin
CALLER_PATH=$PATH
PATH=$BARE_PATH

# What root builds others run, also where root's umask is 077.
umask 022

say() {
    printf '[%4ds] %s\n' $((SECONDS - START)) "$*"
}

die() {
    printf '%s: %s\n' "$(basename "$0")" "$*" >&2
    exit 1
}

# packages_of GROUP...: one line per package, alternatives kept.
packages_of() {
    local group
    for group in "$@"; do
        awk -v g="$group" '$1 == g { print $2 }' "$ROOT/script/packages"
    done | sort -u
}

# packages_missing GROUP...: the lines of which no alternative is installed.
packages_missing() {
    local have line name found
    have=" $(dpkg-query -W -f '${Package} ${db:Status-Status}\n' 2>/dev/null |
        awk '$2 == "installed" { printf "%s ", $1 }')"
    for line in $(packages_of "$@"); do
        found=
        for name in ${line//|/ }; do
            case "$have" in *" $name "*) found=1 ;; esac
        done
        [ -n "$found" ] || echo "$line"
    done
}

# package_choose A|B|C: the first name that this release has.
package_choose() {
    local name
    for name in ${1//|/ }; do
        if apt-cache show --no-all-versions "$name" >/dev/null 2>&1; then
            echo "$name"
            return 0
        fi
    done
    return 1
}

# need_packages GROUP...: installs what is missing; touches apt only when something is.
need_packages() {
    local missing line name chosen=() absent=()
    missing=$(packages_missing "$@")
    [ -n "$missing" ] || return 0
    command -v apt-get >/dev/null ||
        die "needs these packages (Debian or Ubuntu names): $(echo $missing)"
    [ "$(id -u)" = 0 ] ||
        die "needs packages that are not installed; as root run: apt-get install $(echo "$missing" | cut -d"|" -f1 | tr "\n" " ")"
    say "installing packages: $(echo $missing)"
    mkdir -p "$LOGS"
    export DEBIAN_FRONTEND=noninteractive
    timeout 600 apt-get update >"$LOGS/apt.log" 2>&1 ||
        say "apt-get update reported an error (a repository may be out of reach): see $LOGS/apt.log"
    for line in $missing; do
        if name=$(package_choose "$line"); then
            chosen+=("$name")
        else
            absent+=("$line")
        fi
    done
    [ ${#absent[@]} = 0 ] ||
        die "apt has no package ${absent[*]}: check the sources in /etc/apt ('universe' on Ubuntu), then apt-get update"
    timeout 1800 apt-get install -y --no-install-recommends -o DPkg::Lock::Timeout=300 \
        "${chosen[@]}" >>"$LOGS/apt.log" 2>&1 || {
        tail -n 30 "$LOGS/apt.log" >&2
        die "apt-get install ${chosen[*]} failed: see $LOGS/apt.log"
    }
}

# first_of NAME...: the first program that exists, or nothing.
first_of() {
    local name
    for name in "$@"; do
        if command -v "$name"; then
            return 0
        fi
    done
    return 1
}

# bounded SECONDS COMMAND...: timeout(1) that also takes a function of this shell.
bounded() {
    local limit=$1
    shift
    if [ "$(type -t "$1")" = function ]; then
        set -- bash -c "set -uo pipefail; $(declare -p ROOT LOGS); $(declare -f); \"\$@\"" "$1" "$@"
    fi
    timeout --kill-after=20 "$limit" "$@"
}

# step NAME SECONDS COMMAND...: runs it with a time limit and its output in build/logs/NAME.log; says how it went.
FAILED_STEPS=()
step() {
    local name=$1 limit=$2 began=$SECONDS rc=0 log
    shift 2
    log=$LOGS/$name.log
    mkdir -p "$LOGS"
    bounded "$limit" "$@" >"$log" 2>&1 </dev/null || rc=$?
    if [ $rc = 0 ]; then
        say "ok      $name ($((SECONDS - began)) s)"
        return 0
    fi
    [ $rc != 124 ] || echo "stopped after $limit s" >>"$log"
    tail -n 60 "$log"
    say "FAILED  $name ($((SECONDS - began)) s, exit $rc, whole log: $log)"
    FAILED_STEPS+=("$name")
    return 1
}

# meson_setup DIR ARGS...: configures DIR, or leaves a configured one as it is (meson follows changed files itself).
meson_setup() {
    local dir=$1
    shift
    [ -f "$dir/build.ninja" ] && [ -f "$dir/meson-private/coredata.dat" ] && return 0
    meson setup "$dir" "$ROOT" "$@"
}

# build_release: the tree that is installed and tested: build/abx and build/libexec/*.
build_release() {
    local cc
    cc=$(first_of gcc-12 gcc) || die "no gcc"
    CC=$cc meson_setup "$ROOT/build" --buildtype=debugoptimized && ninja -C "$ROOT/build"
}
