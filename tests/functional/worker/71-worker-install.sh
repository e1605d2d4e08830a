#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# sanitizers: no, they need their own libraries
#
# The worker library as others find it: installed, with its examples compiled against it in
# C and in C++, shared and static, without ldconfig. It shows nothing but crun_*, needs little, and its
# manual has every function, by a page of its name; uninstall leaves nothing.
set -euo pipefail
build=${BUILD:-$PWD/build}
root=$(cd "$(dirname "$0")/../../.." && pwd)
case $(basename "$build") in build-*) echo "sanitizers need their own libraries" && exit 77 ;; esac

place=$(mktemp -d)
# as it was built: an absolute name would make objects whose headers the next make does not know
tree=$(realpath --relative-to="$root" "$build")
trap 'rm -rf "$place"' EXIT
make -s -C "$root" B="$tree" PREFIX="$place/usr" install >"$place/log" 2>&1 ||
    { cat "$place/log" && exit 1; }
export PKG_CONFIG_PATH=$place/usr/lib/pkgconfig
lib=$place/usr/lib

fail()
{
    echo "FAIL: $*"
    exit 1
}

[ "$(readlink "$lib/libcrun-worker.so")" = libcrun-worker.so.0 ] || fail "no libcrun-worker.so"
readelf -d "$lib/libcrun-worker.so.0" | grep -q 'SONAME.*\[libcrun-worker.so.0\]' || fail "soname"
others=$(nm -D --defined-only "$lib/libcrun-worker.so.0" | awk '$3 !~ /^crun_/')
[ -z "$others" ] || fail "it shows $others"
others=$(nm -g --defined-only "$lib/libcrun-worker.a" 2>/dev/null | awk 'NF == 3 && $3 !~ /^crun_/')
[ -z "$others" ] || fail "the archive shows $others"

# the functions of the header, of the library, and of the manual
"${CC:-cc}" -E -P -I"$place/usr/include" -include crun/worker.h -x c /dev/null |
    tr '\n' ' ' | grep -o 'visibility("default")))[^;]*;' | grep -o 'crun_[a-z_0-9]*(' |
    tr -d '(' | sort -u >"$place/header"
# crun_memory_* are for the Python package alone
nm -D --defined-only "$lib/libcrun-worker.so.0" | awk '$3 !~ /^crun_memory_/ { print $3 }' | sort -u >"$place/library"
sed -n 's/^\.Fn \(crun_[a-z_0-9]*\).*/\1/p' "$place/usr/share/man/man3/crun-worker.3" |
    sort -u >"$place/manual"
[ "$(wc -l <"$place/header")" -gt 50 ] || fail "the header was not understood"
diff "$place/header" "$place/library" || fail "the library lacks functions, or has others"
diff "$place/header" "$place/manual" || fail "the manual lacks functions, or has others"

# and every status
sed -n '/^typedef enum crun_status/,/^}/s/^ *\(CRUN_[A-Z_]*\).*/\1/p' "$place/usr/include/crun/worker.h" |
    grep -v COUNT | sort -u >"$place/header-statuses"
sed -n 's/^\.It Dv \(CRUN_[A-Z_]*\)$/\1/p' "$place/usr/share/man/man3/crun-worker.3" | sort -u >"$place/statuses"
[ "$(wc -l <"$place/statuses")" -gt 10 ] || fail "the manual has no statuses"
diff "$place/header-statuses" "$place/statuses" || fail "the manual lacks a status, or has others"

# a page for each function, which refers to an existing page
pages=$place/usr/share/man
find "$pages/man3" -name 'crun_*.3' -printf '%f\n' | sed 's/[.]3$//' | sort >"$place/pages"
diff "$place/header" "$place/pages" || fail "functions without a page, or pages without one"
while read -r name; do
    leads_to=$(sed -n '1s/^[.]so //p' "$pages/man3/$name.3")
    [ -n "$leads_to" ] && [ -s "$pages/$leads_to" ] || fail "$name.3 leads to \"$leads_to\""
done <"$place/pages"

run()
{
    "$build/bin/crun" --nproc_per_node=3 "$1" >"$place/out" 2>&1 ||
        { cat "$place/out" && fail "$1"; }
    [ "$(grep -c '^rank [0-2] of 3 (shm): the sum is 3$' "$place/out")" = 3 ] ||
        { cat "$place/out" && fail "$1"; }
}

example=$root/worker-lib/examples/all_reduce.c
read -ra shared < <(pkg-config --cflags --libs crun-worker)
"${CC:-cc}" -Wall -Werror -o "$place/c" "$example" "${shared[@]}"
run "$place/c"
"${CXX:-c++}" -Wall -Werror -x c++ -o "$place/cxx" "$example" "${shared[@]}"
run "$place/cxx"
read -ra flags < <(pkg-config --cflags crun-worker)
read -ra needed < <(sed -n 's/^Libs.private://p' "$PKG_CONFIG_PATH/crun-worker.pc")
"${CC:-cc}" -o "$place/static" "${flags[@]}" "$example" "$lib/libcrun-worker.a" "${needed[@]}"
run "$place/static"

make -s -C "$root" B="$tree" PREFIX="$place/usr" uninstall
left=$(find "$place/usr" ! -type d)
[ -z "$left" ] || fail "uninstall leaves $left"
echo "ok: installed, shared and static, C and C++"
