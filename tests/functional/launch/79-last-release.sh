#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# takes: 5 s; the first time on a machine, 30 s to build the release
# sanitizers: no, half of it is another build
#
# A job of this build and the last release, the newest tag before this commit: either may host the
# rendezvous, a failed worker of either restarts both, and this crunctl shows the job and stops it.
set -euo pipefail
build=${BUILD:-$PWD/build}
root=$(cd "$(dirname "$0")/../../.." && pwd)
skip()
{
    echo "SKIPPED: $*"
    exit 77
}
fail()
{
    echo "FAIL: $*"
    cat "$place"/*.log
    exit 1
}
case $(basename "$build") in build-*) skip "the plain build is enough" ;; esac
tag=$(git -C "$root" describe --tags --match 'v[0-9]*' --abbrev=0 HEAD^ 2>/dev/null) || skip "no release has a tag yet"
cache=${CRUN_INTEROP_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/crun-interop}
old=$cache/release-$(git -C "$root" rev-parse "$tag^{commit}")
place=$(mktemp -d)
pids=()
trap 'kill "${pids[@]}" 2>/dev/null || true; wait; rm -rf "$place"' EXIT

mkdir -p "$cache"
exec 9>"$old.lock"
flock 9
if [ ! -x "$old/build/bin/crun" ]; then
    rm -rf "$old"
    mkdir "$old"
    git -C "$root" archive "$tag" | tar -C "$old" -xf -
    nice make -s -C "$old" CUDA=no OPT=-O0 B=build build/bin/crun >"$place/make.log" 2>&1 || fail "$tag does not build here"
fi
exec 9>&-
new=$build/bin/crun old=$old/build/bin/crun
echo "$("$old" --version) beside $("$new" --version)"

# node NAME PROGRAM FLAG... -- COMMAND: one of two nodes of a job on this machine
node()
{
    local name=$1 program=$2
    shift 2
    "$program" --nnodes=2 --nproc-per-node=2 --rdzv-id=job --max-restarts=1 "$@" >"$place/$name.log" 2>&1 &
    pids+=($!)
}

# until_true COMMAND...
until_true()
{
    local end=$((SECONDS + 60))
    until "$@"; do
        [ $SECONDS -lt $end ] || fail "timed out: $*"
        sleep 0.05
    done
}

# The host takes any free port and says which.
# together HOST GUEST: rank 3 fails once, then all four ranks print the same epoch
together()
{
    local host=$1 guest=$2 port pid
    rm -f "$place"/failed "$place"/*.log
    # shellcheck disable=SC2016 # the workers' variables
    local work='[ $RANK != 3 ] || [ -e "$0" ] || { : >"$0" && exit 5; }
        [ -e "$0" ] || exec sleep 60
        echo "rank $RANK of $WORLD_SIZE, restart $TORCHELASTIC_RESTART_COUNT"'
    port=$(python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])')
    pids=()
    node host "$host" --node-rank=0 --master-addr=127.0.0.1 --master-port="$port" sh -c "$work" "$place/failed"
    node guest "$guest" --node-rank=1 --master-addr=127.0.0.1 --master-port="$port" sh -c "$work" "$place/failed"
    for pid in "${pids[@]}"; do
        wait "$pid" || fail "exit code $?"
    done
    pids=()
    [ "$(cat "$place"/*.log | grep -o 'rank . of 4, restart 1' | sort -u | wc -l)" = 4 ] || fail "not four ranks after one restart"
}

# look HOST GUEST: crunctl of this build at a job of both
look()
{
    local port
    rm -f "$place"/*.log
    port=$(python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])')
    pids=()
    node host "$1" --node-rank=0 --master-addr=127.0.0.1 --master-port="$port" sleep 60
    node guest "$2" --node-rank=1 --master-addr=127.0.0.1 --master-port="$port" sleep 60
    runs() { "$build/bin/crunctl" -e "127.0.0.1:$port" status 2>&1 | grep -q '4 workers on 2 nodes'; }
    until_true runs
    "$build/bin/crunctl" -e "127.0.0.1:$port" stop --rdzv-id job || fail "crunctl stop"
    wait "${pids[@]}" || true
    pids=()
    grep -q 'crunctl stop' "$place/guest.log" || fail "the guest was not stopped by crunctl"
}

together "$old" "$new"
together "$new" "$old"
look "$old" "$new"
look "$new" "$old"
echo "ok: $tag beside this build"
