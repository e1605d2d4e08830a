#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# takes: 12 s
# sanitizers: no, scripts/demo makes and runs the plain build
#
# The demo does what it says: a worker is killed, it comes back, digits are read. With a
# small model and few samples, so that it takes seconds.
set -euo pipefail
cd "$(dirname "$0")/../../.."

# it makes the plain build, which is not what is to be tested under a sanitizer
if [ "$(realpath "${BUILD:-build}")" != "$(realpath build)" ]; then
    echo 'SKIPPED: the demo makes its own build' >&2
    exit 77
fi

export TMPDIR
TMPDIR=$(mktemp -d)
trap 'rm -rf "$TMPDIR"' EXIT
out=$TMPDIR/out
fail()
{
    echo "FAILED: $1" >&2
    cat "$out" >&2
    exit 1
}

scripts/demo --model mlp --passes 3 --train-limit 12000 >"$out" 2>&1 || fail 'exit code'
for words in 'demo: kill -9 [0-9]*, which is rank 2$' \
    'crun: rank 2 on .* was killed by SIGKILL' \
    'train: resumed after step [0-9]*, .* from memory$' \
    'resumed at step [0-9]* from memory, [01] steps\{0,1\} to be done again' \
    'loss, undisturbed$' 'loss, killed, then on from memory' \
    'demo: 9[0-9].* % of unseen digits are read correctly; restarts: 1$' \
    'demo: equal, bit by bit$'; do
    grep -q "$words" "$out" || fail "nowhere: $words"
done
ls "$TMPDIR"/crun-demo.*/{undisturbed,killed}/{checkpoints,metrics,logs} >/dev/null ||
    fail 'nothing was kept'
grep -q 'rank 2 on [^ ]* was killed by SIGKILL' "$TMPDIR"/crun-demo.*/report.html || fail 'the report is of another run'

# what the demo draws, as a file for a browser
cat "$TMPDIR"/crun-demo.*/{killed,undisturbed}/metrics >"$TMPDIR/metrics"
scripts/plot --svg "$TMPDIR/a.svg" --theme dark "a <b>=$TMPDIR/metrics" >"$out" 2>&1 ||
    fail 'plot --svg'
python3 -c "
import sys, xml.dom.minidom as x
paths = x.parse(sys.argv[1]).getElementsByTagName('path')
curves = [p for p in paths if p.getAttribute('fill') == 'none']
assert len(curves) == 3, len(curves)  # before the kill and after it, and undisturbed
" "$TMPDIR/a.svg" >"$out" 2>&1 || fail 'the SVG'
if scripts/plot README.md >"$out" 2>&1; then fail 'a file that is not of metrics'; fi
grep -qx 'plot: README.md is not a file of metrics (train --metrics=FILE)' "$out" || fail 'plot: what it says'
if scripts/demo --pases 3 >"$out" 2>&1; then fail 'a wrong flag'; fi
