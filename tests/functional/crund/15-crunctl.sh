#!/usr/bin/env bash
# crunctl against a crund with a job in it: what is shown, what is refused, exit codes.
set -eEuo pipefail

bin=$BUILD/bin
dir=$(mktemp -d)
pids=()
cleanup() {
    for pid in "${pids[@]}"; do
        kill "$pid" 2>/dev/null || true
        wait "$pid" 2>/dev/null || true
    done
    rm -rf "$dir"
}
trap cleanup EXIT

fail() {
    echo "FAILED: $*" >&2
    exit 1
}
trap 'fail "line $LINENO: exit code $?: $BASH_COMMAND"' ERR

# until COMMAND...: poll for at most 90 s
until_true() {
    local end=$((SECONDS + 90))
    until "$@"; do
        [ $SECONDS -lt $end ] || fail "timed out: $*"
        sleep 0.02
    done
}

# expect CODE TEXT COMMAND...: the exit code, and the text in what is printed
expect() {
    local code=$1 text=$2 rc=0
    shift 2
    timeout 90 "$@" >"$dir/out" 2>&1 || rc=$?
    [ $rc -eq "$code" ] || fail "$*: exit code $rc, not $code: $(cat "$dir/out")"
    grep -qF -- "$text" "$dir/out" || fail "$*: \"$text\" is not in: $(cat "$dir/out")"
}

# serve [FLAG...]: start a crund and set $endpoint. Each has a log of its own: the shell
# empties the file in the background, and the line of the crund before could still be in it.
serve() {
    local log=$dir/crund.${#pids[@]}.log
    : >"$log"
    "$bin/crund" --listen 127.0.0.1:0 "$@" 2>"$log" &
    pids+=($!)
    until_true grep -q 'listening on' "$log"
    endpoint=$(grep -oE '127\.0\.0\.1:[0-9]+' "$log" | head -n 1)
}

# load NAME AGENTS: hold a running job of that many agents
load() {
    "$bin/agent-load" --run-id "$1" --agents "$2" --hold agents --endpoint "$endpoint" \
        >"$dir/$1.log" 2>&1 &
    pids+=($!)
    until_true grep -q ready "$dir/$1.log"
}

expect 0 'usage: crunctl' "$bin/crunctl" --help
expect 0 'usage: crunctl drain [JOB] NODE' "$bin/crunctl" drain --help
for command in status top events stacks page stop drain; do # its own flags first, then the questions
    flags=$("$bin/crunctl" "$command" --help | grep -oE '^ .*--[a-z-]+' | grep -oE '[a-z-]+$' | xargs)
    case $flags in
    *'--rdzv-endpoint --rendezvous-user --rdzv-id --timeout --key-file --require-key --version --help') ;;
    *) fail "crunctl $command --help: $flags" ;;
    esac
done
expect 0 'crunctl ' "$bin/crunctl" --version
expect 2 'a command is missing' "$bin/crunctl"
expect 2 '"stauts" is not a command; did you mean status?' "$bin/crunctl" stauts
expect 2 '"frobnicate" is not a command: use status, top, events, logs, stacks, page, report,' "$bin/crunctl" frobnicate
expect 2 'did you mean --json' "$bin/crunctl" status --jsn
expect 2 'the NODE is missing' "$bin/crunctl" drain
expect 1 'there is no job "nosuch" on this machine' "$bin/crunctl" status nosuch
expect 2 '"more": crunctl status takes one job' "$bin/crunctl" status nosuch more
expect 2 '"more": crunctl drain takes one job and one node' "$bin/crunctl" drain a b more
expect 2 '--timeout' "$bin/crunctl" status --timeout 0
expect 2 '--timeout' "$bin/crunctl" status --timeout soon
expect 2 '--since' "$bin/crunctl" events --since -1
expect 2 '--rdzv-id' "$bin/crunctl" status --rdzv-id ''
expect 2 '"a b" is not the name of a job' "$bin/crunctl" status --rdzv-id 'a b'
expect 69 'no rendezvous answers at 127.0.0.1:1' "$bin/crunctl" -e 127.0.0.1:1 status
expect 2 '--rdzv-endpoint' "$bin/crunctl" -e 127.0.0.1:99999 status

serve
ctl=("$bin/crunctl" --rdzv-endpoint "$endpoint")
expect 0 'no jobs' "${ctl[@]}" status
expect 0 '[]' "${ctl[@]}" status --json
expect 1 'there is no job here' "${ctl[@]}" stop
expect 2 '"no de" is not a node' "${ctl[@]}" drain 'no de'

load alpha 3
expect 0 '24 workers on 3 nodes  epoch 1' "${ctl[@]}" status
expect 0 'node-00002' "${ctl[@]}" status
CRUN_RDZV_ENDPOINT=$endpoint \
    expect 0 'alpha-0  running for' "$bin/crunctl" status
expect 0 '"worker_count":' "${ctl[@]}" status --json
"${ctl[@]}" status --json | python3 -c '
import json, sys
from datetime import datetime
text = sys.stdin.read()
assert "\t" not in text, text
job, = json.loads(text)
assert job["state"] == "running" and job["node_count"] == 3, job
assert sorted(n["slot"] for n in job["nodes"]) == [0, 1, 2], job
assert len(job["instance"]) == 32 and job["exit_code"] is job["ended"] is None, job
assert abs(datetime.fromisoformat(job["started"]).timestamp() - job["started_ms"] / 1000) < 1, job
node = job["nodes"][0]
assert node["loss"] is node["steps_per_s"] is node["step"] is node["gpus"] is None, node
assert node["slowness"] is node["xid"] is node["checkpoint_age_ms"] is None, node
assert node["xids"] == 0, node
' || fail "status --json"

expect 0 'epoch 1 formed: 3 nodes, 24 workers' "${ctl[@]}" events
expect 0 '"kind":"formed"' "${ctl[@]}" events --json
[ "$("${ctl[@]}" events --json --since 3 | wc -l)" -eq 1 ] || fail "events --since"
expect 1 'fewer than 3 nodes would remain' "${ctl[@]}" drain node-00001
expect 1 'has no node "nosuch"' "${ctl[@]}" drain nosuch
expect 1 'there is no job "nosuch"' "${ctl[@]}" status --rdzv-id nosuch
expect 1 'there is no job "nosuch"' "${ctl[@]}" events --rdzv-id nosuch

"${ctl[@]}" events --follow >"$dir/follow" &
follower=$!
pids+=($follower)
until_true grep -q formed "$dir/follow"
load beta 2
expect 0 '2 running' "${ctl[@]}" status
expect 1 'several jobs; name one: beta-0, alpha-0' "${ctl[@]}" stop
until_true grep -q 'beta-0.*formed' "$dir/follow"
said=$("${ctl[@]}" stop --rdzv-id alpha-0 2>&1) || fail "stop: $said"
[ "$said" = "alpha-0: stopping" ] || fail "stop says: $said"
until_true grep -q 'alpha-0.*done' "$dir/follow"
expect 0 'alpha-0  stopped' "${ctl[@]}" status --rdzv-id alpha-0
expect 0 'by crunctl stop' "${ctl[@]}" status --rdzv-id alpha-0
expect 0 '1 running, 1 stopped' "${ctl[@]}" status
expect 1 'has ended already' "${ctl[@]}" stop --rdzv-id alpha-0
expect 0 'beta-0  running for' "${ctl[@]}" status --rdzv-id beta-0
kill -INT $follower
rc=0
wait $follower || rc=$?
[ $rc -eq 0 ] || fail "events --follow ended with $rc at Ctrl-C"

# live, where there is no terminal: again and again
python3 - "${ctl[@]}" <<'EOS'
import os, subprocess, sys
p = subprocess.Popen([*sys.argv[1:], "status", "--watch=0.1"], stdout=subprocess.PIPE)
said = b""
while said.count(b"1 running, 1 stopped") < 3:
    said += os.read(p.stdout.fileno(), 65536)
p.terminate()
p.wait()
assert b"\x1b" not in said, said
EOS

# crunctl ends when its output is closed; texts of a node do not control a terminal
"${ctl[@]}" events --follow > >(true) 2>"$dir/unread.log" &
unread=$!
pids+=($unread)
for flags in --help "status --help" "status" "events"; do
    # shellcheck disable=SC2086
    if "${ctl[@]}" $flags >/dev/full 2>&1; then fail "$flags: a full disk is a success"; fi
done
PYTHONPATH=$(dirname "$0")/../../lib python3 - "${endpoint##*:}" <<'EOS'
import sys
from control import *
s = Session(int(sys.argv[1]))
s.send(hello("agent"))
s.expect(WELCOME)
s.send(join(nodes=2))
instance = s.expect(JOINED)[1][5]
s.send(frame(LEAVE, {"reason": "\x1b[2J gone", "exit_code": 1}, instance=instance))
s.expect(ACK)
s.expect(DONE)
EOS
expect 0 'wants to leave: \x1b[2J gone' "${ctl[@]}" events
timeout 90 tail --pid=$unread -f /dev/null ||
    fail "events --follow continues without a reader"

# more nodes than one page of the answer holds
load wide 300
[ "$("${ctl[@]}" status --rdzv-id wide-0 | grep -c '^node-')" -eq 300 ] || fail "300 nodes"

# after a restart it is said where the events begin
serve --state-dir "$dir/state"
daemon=${pids[-1]}
load gamma 1
kill -KILL "$daemon"
wait "$daemon" 2>/dev/null || true
serve --state-dir "$dir/state"
expect 0 'restored    the rendezvous was restarted: earlier events are not kept' \
    "$bin/crunctl" -e "$endpoint" events
