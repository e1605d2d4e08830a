#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
#
# A guard with idle workers is idle, too.
set -euo pipefail

dir=$(mktemp -d)
pid=
cleanup() {
    if [ -n "$pid" ]; then
        kill -9 "$pid" && wait "$pid" || true
    fi 2>/dev/null
    rm -rf "$dir"
}
trap cleanup EXIT

fail() {
    echo "FAILED: $*" >&2
    exit 1
}

# nanoseconds that a process has run for
used() {
    cut -d ' ' -f 1 "/proc/$1/schedstat"
}

[ -r /proc/self/schedstat ] || exit 77
mkfifo "$dir/out"
"$BUILD/bin/guard-driver" 2 "$(command -v sleep)" 60 >"$dir/out" &
pid=$!
exec 3<"$dir/out"
read -r -t 10 _ guard containment <&3 || fail "no guard"

# two sleeps have got as far as sleeping
end=$((SECONDS + 10))
until [ "$(cat /proc/[0-9]*/stat 2>/dev/null | grep -c "(sleep) S $guard ")" = 2 ]; do
    [ $SECONDS -lt $end ] || fail "no workers"
    sleep 0.02
done
before=$(used "$guard")
sleep 0.5
spent=$((($(used "$guard") - before) / 1000))
[ $spent -lt 20000 ] || fail "the guard ($containment) ran for $spent us of 500,000"
