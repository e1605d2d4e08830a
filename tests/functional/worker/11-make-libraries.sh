#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# sanitizers: no, it runs make alone
#
# What is linked along as an archive comes from where pkg-config says that the library is.
set -euo pipefail
root=$(cd "$(dirname "$0")/../../.." && pwd)
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT

fail()
{
    echo "FAIL: $*"
    exit 1
}

# library NAME FILE...: pkg-config's word on a library of which there are these files
library()
{
    local name=$1 file
    shift
    mkdir -p "$place/pkgconfig" "$place/$name"
    printf 'Name: %s\nDescription: %s\nVersion: 9\nLibs: -L%s -l%s\n' "$name" "$name" \
        "$place/$name" "${name#lib}" >"$place/pkgconfig/$name.pc"
    for file; do : >"$place/$name/$file"; done
}

linked()
{
    PKG_CONFIG_PATH=$place/pkgconfig make -n -C "$root" B="$place/b" "$place/b/$1" |
        grep -A2 -- "-o $place/b/$1" | tr '\n' ' '
}

library libevent_core libevent_core.a libevent_core.so
library libcjson libcjson.so
mkdir "$place/zlib"
printf 'Name: zlib\nDescription: zlib\nVersion: 9\nLibs: -L%s -lz\n' "$place/zlib" \
    >"$place/pkgconfig/zlib.pc"
: >"$place/zlib/libz.so"

line=$(linked bin/crun)
[[ $line == *" $place/libevent_core/libevent_core.a "* ]] || fail "another libevent: $line"
[[ $line == *" -L$place/zlib "*"-lz "* ]] || fail "an archive of another zlib: $line"
line=$(linked lib/libcrun-worker.so.0)
[[ $line == *" $place/libevent_core/libevent_core.a "* ]] || fail "another libevent: $line"
[[ $line == *" -L$place/libcjson "*"-lcjson "* ]] || fail "another cjson: $line"

# as pkg-config has it on this machine: no archive is needed
rm -r "$place/pkgconfig"
[[ $(linked bin/crun) == *event_core* ]] || fail "no libevent: $(linked bin/crun)"
