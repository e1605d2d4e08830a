#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# sanitizers: no, it runs no program of ours
#
# scripts/setup waits while another process has the locks of apt: the real apt-get, with folders of
# its own, and no dpkg.
set -euo pipefail
root=$(cd "$(dirname "$0")/../../.." && pwd)
skip()
{
    echo "SKIPPED: $*" && exit 77
}
[ "$(id -u)" = 0 ] || skip "not root"
command -v apt-get dpkg-deb >/dev/null || skip "no apt-get, no dpkg-deb"
place=$(mktemp -d)
chmod 755 "$place"
trap 'kill "${holder-}" "${setup-}" 2>/dev/null || true; rm -rf "$place"' EXIT

# a repository with one package
mkdir -p "$place"/{repo,deb/DEBIAN,dpkg/updates,lists/partial,cache/archives/partial,tools}
printf '%s\n' 'Package: gcc' 'Version: 1' 'Architecture: all' 'Maintainer: none' 'Description: none' >"$place/deb/DEBIAN/control"
dpkg-deb -b "$place/deb" "$place/repo/gcc.deb" >/dev/null
{ cat "$place/deb/DEBIAN/control" && echo "Filename: ./gcc.deb" &&
    echo "Size: $(stat -c %s "$place/repo/gcc.deb")" &&
    echo "SHA256: $(sha256sum "$place/repo/gcc.deb" | cut -c1-64)"; } >"$place/repo/Packages"
echo "deb [trusted=yes] file:$place/repo ./" >"$place/sources.list"
: >"$place/dpkg/status"
cat >"$place/apt.conf" <<END
Dir::State "$place"; Dir::State::lists "$place/lists"; Dir::State::status "$place/dpkg/status";
Dir::State::extended_states "$place/extended"; Dir::Cache "$place/cache"; Dir::Log "$place";
Dir::Etc::sourcelist "$place/sources.list"; Dir::Etc::sourceparts "-"; Dir::Etc::parts "-";
Dir::Bin::dpkg "$place/tools/dpkg"; APT::Sandbox::User "root"; APT::Architecture "amd64";
#clear DPkg::Post-Invoke; #clear DPkg::Pre-Install-Pkgs; #clear APT::Update::Post-Invoke;
END
printf '#!/bin/sh\necho "$*" >>%q\n' "$place/installed" >"$place/tools/dpkg"
chmod +x "$place/tools/dpkg"

# hold FILE: another process has its lock
hold()
{
    rm -f "$place/held"
    python3 -c 'import fcntl, sys, time
f = open(sys.argv[1], "w"); fcntl.lockf(f, fcntl.LOCK_EX); open(sys.argv[2], "w"); time.sleep(60)' \
        "$1" "$place/held" &
    holder=$!
    until [ -e "$place/held" ]; do sleep 0.05; done
}

# waits_for FILE TEXT: setup does not go on while the lock is held
waits_for()
{
    rm -f "$place/installed"
    hold "$1"
    APT_CONFIG=$place/apt.conf CC=$place/no-cc "$root/scripts/setup" --build >"$place/out" 2>&1 &
    setup=$!
    until grep -q "$2" "$place/out"; do
        kill -0 $setup || { cat "$place/out" && exit 1; }
        sleep 0.05
    done
    sleep 1
    kill -0 $setup || { echo "FAIL: it does not wait" && cat "$place/out" && exit 1; }
    ! grep -qs unpack "$place/installed" || { echo "FAIL: it has not waited" && exit 1; }
    kill $holder
    wait $holder 2>/dev/null || true
    wait $setup || { cat "$place/out" && exit 1; }
    grep -q unpack "$place/installed"
}

waits_for "$place/lists/lock" 'waiting for another apt-get'
waits_for "$place/dpkg/lock-frontend" 'installing gcc'
echo "ok: both locks"
