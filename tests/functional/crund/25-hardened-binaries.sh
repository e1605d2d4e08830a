#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# sanitizers: no, they have flags of their own
#
# The programs as the linker left them, and the objects that they are made of: what the
# compiler has against exploits is in them.
set -euo pipefail
build=${BUILD:-$PWD/build}
case $(basename "$build") in build-*) echo "sanitizers have flags of their own" && exit 77 ;; esac

fail()
{
    echo "FAIL: $*"
    exit 1
}

# Whether the compiler takes a flag.
takes()
{
    "${CC:-gcc}" -Werror "$1" -x c -c -o /dev/null /dev/null 2>/dev/null
}

for name in crun crund crunctl crun-preflight; do
    all=$(readelf -hldW --dyn-syms "$build/bin/$name")
    grep -q 'Type: *DYN' <<<"$all" || fail "$name is at a fixed address"
    grep -q 'GNU_RELRO' <<<"$all" || fail "$name: its tables can be written"
    grep -q 'BIND_NOW' <<<"$all" || fail "$name: its tables are filled in later"
    grep -q 'GNU_STACK .* RW ' <<<"$all" || fail "$name: its stack can be executed"
    ! grep -q 'LOAD .* RWE' <<<"$all" || fail "$name: code can be written"
    ! grep -qE 'TEXTREL|RPATH|RUNPATH' <<<"$all" || fail "$name: what it loads"
    grep -q '__stack_chk_fail' <<<"$all" || fail "$name: no stack protector"
    grep -q '__snprintf_chk' <<<"$all" || fail "$name: no checked calls of the C library"
    if pkg-config --exists libseccomp 2>/dev/null; then
        found=$(grep -c 'NEEDED.*libseccomp' <<<"$all" || true)
        [ "$found" = $([ $name = crund ] && echo 1 || echo 0) ] || fail "$name: libseccomp: $found"
    fi
done

# The flags with which an object is compiled are in its debug information, if gcc does it.
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
object=$place/obj/rendezvous/common/base/err.o
make -s B="$place" "$object" >"$place/log" 2>&1 || { cat "$place/log" && exit 1; }
flags=$(readelf --debug-dump=info "$object" 2>/dev/null | awk '/DW_AT_producer/ && !n++')
for flag in -fcf-protection -fstack-clash-protection -fstack-protector-strong; do
    [[ $flags == *clang* ]] || ! takes $flag || [[ $flags == *$flag* ]] || fail "no $flag: $flags"
done
if takes -fcf-protection; then
    grep -q 'IBT, SHSTK' <<<"$(readelf -nW "$object")" || fail "calls and returns are not marked"
fi
