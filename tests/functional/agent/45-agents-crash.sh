#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# takes: 3 s
#
# Real clients keep their jobs through the deaths of their daemon: it is killed with -9 and
# started again on its directory, over and over, while jobs form, fail, restart and finish.
# agent-load ends in failure if an agent is refused, gives up, is given a rank twice, sees
# an epoch go back, or if a restart is forgotten.
set -uo pipefail

BUILD=${BUILD:-build}
KILLS=${1:-12}
dir=$(mktemp -d)
daemon='' load=''

cleanup()
{
    [ -n "$load" ] && kill "$load" 2>/dev/null
    [ -n "$daemon" ] && kill "$daemon" 2>/dev/null
    wait
    rm -rf "$dir"
}
trap cleanup EXIT

fail()
{
    echo "FAIL: $*"
    tail -n 20 "$dir"/crund.err "$dir"/load.err
    exit 1
}

start_daemon()
{
    "$BUILD/bin/crund" --listen "$1" --state-dir "$dir/state" 2>>"$dir/crund.err" &
    daemon=$!
}

start_daemon 127.0.0.1:0
until endpoint=$(grep -oE '127\.0\.0\.1:[0-9]+' "$dir/crund.err" 2>/dev/null | head -n 1) &&
    [ -n "$endpoint" ]; do
    kill -0 "$daemon" || fail "crund does not start"
    sleep 0.02
done

"$BUILD/bin/agent-load" --endpoint "$endpoint" --agents 30 --failures 20 --rounds 1000000 \
    --limit 3600 >"$dir/load.out" 2>"$dir/load.err" &
load=$!

for ((i = 0; i < KILLS; i++)); do
    sleep "0.$((RANDOM % 300 + 100))"
    kill -9 "$daemon"
    wait "$daemon" 2>/dev/null
    kill -0 "$load" 2>/dev/null || fail "the agents have ended after $i kills"
    start_daemon "$endpoint"
done

# the daemon stays: whatever job there is comes to its end, and the next one too
jobs=$(wc -l <"$dir/load.out")
for ((i = 0; i < 3000; i++)); do
    [ "$(wc -l <"$dir/load.out")" -ge $((jobs + 2)) ] && break
    kill -0 "$load" 2>/dev/null || fail "the agents have ended"
    sleep 0.01
done
[ "$(wc -l <"$dir/load.out")" -ge $((jobs + 2)) ] || fail "no job comes to its end"
[ -s "$dir/load.err" ] && fail "agents complain"
echo "ok: $(wc -l <"$dir/load.out") jobs of 30 agents with 20 restarts each, $KILLS kills"
