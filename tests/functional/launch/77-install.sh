#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# takes: 4 s
# sanitizers: no, they would be installed
#
# make install beside podman and the OCI runtime that is called crun, too; what lacks for
# building is one line; and Debian's package, if its tools are here.
set -euo pipefail
build=${BUILD:-$PWD/build}
root=$(cd "$(dirname "$0")/../../.." && pwd)
case $(basename "$build") in build-*) echo "SKIPPED: not a build that is installed" && exit 77 ;; esac

place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
# as it was built: an absolute name would make objects whose headers the next make does not know
tree=$(realpath --relative-to="$root" "$build")
usr=$place/usr
mkdir -p "$usr/bin" "$place/tools"
export CRUN_OCI_FOLDERS=$usr/bin

fail()
{
    echo "FAIL: $*"
    exit 1
}

# refused PROGRAM WORDS...: name-check refuses to install it, and says all of WORDS
refused()
{
    local program=$1 word
    shift
    ! "$root/scripts/name-check" "$program" >"$place/out" 2>&1 || fail "$program is not refused: $*"
    for word in "$@"; do
        grep -qF -- "$word" "$place/out" || { cat "$place/out" && fail "\"$word\" is missing"; }
    done
}

allowed()
{
    "$root/scripts/name-check" "$@" || fail "$* is refused"
}

# fake FILE LINE...: a program that prints these lines
fake()
{
    local file=$1
    shift
    { printf '#!/bin/sh\ncat <<END\n' && printf '%s\n' "$@" END; } >"$file"
    chmod +x "$file"
}

install_it()
{
    make -s -C "$root" B="$tree" PREFIX="$usr" "$@" >"$place/out" 2>&1
}

# Only what is in these folders is found: this machine may have a podman.
PATH=$place/tools:$PATH
for tool in podman buildah crio; do
    while command -v $tool >/dev/null; do
        PATH=$(tr : '\n' <<<"$PATH" | grep -vxF "$(dirname "$(command -v $tool)")" | paste -sd:)
    done
done
command -v make >/dev/null || { echo "SKIPPED: the folder of podman has make, too" && exit 77; }

allowed "$usr/bin/crun"
for tool in podman buildah crio; do
    fake "$place/tools/$tool" "$tool version 5"
    refused "$usr/bin/crun" "$tool is here" 'make CRUN=tcrun install' 'make CRUN_ANYWAY=1 install'
    rm "$place/tools/$tool"
done
fake "$usr/bin/podman" 'podman version 5'
refused "$usr/bin/crun" podman
allowed "$usr/bin/tcrun"
allowed "$place/home/bin/crun"
CRUN_ANYWAY=1 allowed "$usr/bin/crun"
! install_it install || fail "installed as crun beside podman"
grep -q CRUN=tcrun "$place/out" || { cat "$place/out" && fail "make does not say why"; }
[ "$(find "$usr" -type f)" = "$usr/bin/podman" ] || fail "something was installed: $(find "$usr" -type f)"

install_it CRUN_ANYWAY=1 install || { cat "$place/out" && fail "CRUN_ANYWAY=1"; }
grep -q "export PATH=$usr/bin" "$place/out" || { cat "$place/out" && fail "no word about PATH"; }
"$usr/bin/crun" --nproc_per_node=2 train --help >"$place/out" 2>&1 || { cat "$place/out" && fail train; }
"$usr/bin/crun" coll-bench --help >"$place/out" 2>&1 || { cat "$place/out" && fail coll-bench; }
CRUN_ANYWAY=1 allowed "$usr/bin/crun" # once more
install_it uninstall || { cat "$place/out" && fail uninstall; }
[ "$(find "$usr" -type f)" = "$usr/bin/podman" ] || fail "uninstall leaves $(find "$usr" -type f)"
rm "$usr/bin/podman"

# the OCI runtime itself is never overwritten, and never removed
fake "$usr/bin/crun" 'crun version 1.8.1' 'commit: f8a096be060b22ccd3d5f3ebe44108517fbf6c30' 'spec: 1.0.0'
export CRUN_ANYWAY=1
refused "$usr/bin/crun" "$usr/bin/crun is another program" CRUN=tcrun
unset CRUN_ANYWAY
! install_it uninstall || fail "uninstall beside another crun"
grep -q spec: "$usr/bin/crun" || fail "another crun was removed"
CRUN_OCI_FOLDERS="$usr/bin $place/local" refused "$place/local/crun" "$usr/bin/crun (an OCI runtime) is here"
fake "$usr/bin/train" 'all aboard'
refused "$usr/bin/train" "$usr/bin/train is another program"

# no program is run from DESTDIR, under whatever name
if [ "$(id -u)" = 0 ] && unshare -m true 2>/dev/null; then
    mkdir "$place/noexec"
    unshare -m sh -c 'mount -t tmpfs -o noexec none "$1/noexec" && place=$1 && shift && "$@" &&
        cp "$place/noexec/usr/share/bash-completion/completions/tcrun" "$place"' sh "$place" \
        env DESTDIR="$place/noexec" make -s -C "$root" B="$tree" PREFIX=/usr CRUN=tcrun install >"$place/out" 2>&1 ||
        { cat "$place/out" && fail "make install DESTDIR= where nothing can be run"; }
fi

# what lacks is one line
! CC=$place/no-cc install_it all || fail "built without a compiler"
[ "$(wc -l <"$place/out")" = 1 ] && grep -q 'missing: gcc .*scripts/setup --build.*dnf install gcc' "$place/out" ||
    { cat "$place/out" && fail "a missing compiler"; }

if ! command -v dpkg-deb >/dev/null; then
    echo "ok: install; no dpkg-deb here"
    exit 0
fi
"$root/scripts/deb" --quick --build "$tree" --output "$place" >"$place/out" 2>&1 || { cat "$place/out" && fail deb; }
dpkg-deb -x "$place"/crun-launcher_*.deb "$place/deb"
dpkg-deb -f "$place"/crun-launcher_*.deb Depends | grep -q 'libc6.*zlib1g' || fail "what the package depends on"
others=$(cd "$place/deb" && find . -path './usr/bin/crun' -o -path '*/man1/crun.1*' -o -path '*/completions/crun')
[ -z "$others" ] || fail "the package has files of Debian's crun: $others"
[ "$("$place/deb/usr/bin/tcrun" --nproc_per_node=2 sh -c 'echo $WORLD_SIZE' | sort -u)" = 2 ] || fail "the package's tcrun"
"$place/deb/usr/bin/crunctl" --version >/dev/null || fail "the package's crunctl"
echo "ok: install and package"
