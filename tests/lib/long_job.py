# SPDX-License-Identifier: MIT
"""The object of a job as `crunctl status --json` prints it, with all that is ever kept of it."""
import math

DAY_MS = 86400_000
BEGUN_MS = 1795402188509
POINTS, EPOCHS, EVENTS = 255, 64, 64
CAUSES = ["failure", "lost", "hang", "scale-up", "drain", "user"]
PHASES = ["detect_ms", "stop_ms", "form_ms", "start_ms", "first_step_ms", "rework_ms"]


def node(number, workers):
    """Of each hundred, one is slow, one has had an XID, one is cut off."""
    kind = number % 100
    return {
        "host": f"gpu-node-{number:05}", "address": f"10.0.{number >> 8}.{number & 255}",
        "pid": 1000 + number, "state": "running", "connected": kind != 9, "slot": number,
        "group_rank": number, "first_rank": number * workers, "workers": workers,
        "heard_ms_ago": number * 7 % 1000, "containment": "cgroup", "step": 863990 + number % 10,
        "steps_per_s": round(10 - number % 7 / 10, 1), "loss": round(2 + number / 3333, 4), "note": "",
        "gpus": {"count": workers, "percent": 80 + number % 20, "used_mib": 61000 + number,
                 "total_mib": 81559, "celsius": 60 + number % 30, "watts": 5000 + number},
        "slowness": 1.5 if kind == 7 else 1, "xid": 79 if kind == 8 else None,
        "xids": int(kind == 8), "checkpoint_age_ms": 60000 + number}


def curve():
    part = [i / (POINTS - 1) for i in range(POINTS)]
    return {"time_ms": [BEGUN_MS + int(p * DAY_MS) for p in part],
            "step": [int(p * 864000) for p in part],
            "steps_per_s": [round(10 + math.sin(p * 50), 3) for p in part],
            "loss": [round(2 + 8 / (1 + p * 30) + 0.1 * math.sin(p * 700), 5) for p in part],
            "gpu_percent": [round(88 + 7 * math.sin(p * 40), 1) for p in part],
            "gpu_used_mib": [int(61000 + 900 * math.sin(p * 9)) for p in part],
            "gpu_watts": [int(5300000 + 200000 * math.sin(p * 40)) for p in part]}


def epoch(number, text):
    begun = BEGUN_MS + (number - 1) * DAY_MS // EPOCHS
    lost = dict(zip(PHASES, (5000, 1200, 800, 2500, 20000, 90000)), steps_again=900)
    return {"epoch": number, "cause": CAUSES[number % len(CAUSES)] if number > 1 else "first",
            "text": text, "begun_ms": begun, "formed_ms": begun + 2000, "started_ms": begun + 4500,
            "first_step_ms": begun + 24500, "nodes": 1000, "workers": 8000,
            "ended_ms": begun + DAY_MS // EPOCHS if number < EPOCHS else None,
            "productive_ms": DAY_MS // EPOCHS - 120000, "lost": lost}


def event(number, run_id, text):
    at = BEGUN_MS + DAY_MS - (EVENTS - number) * 60000
    return {"number": number, "sequence": number, "time": "2026-11-23T02:49:48.509Z", "time_ms": at,
            "monotonic_ms": at - BEGUN_MS, "job": run_id, "run_id": run_id, "epoch": EPOCHS,
            "instance": "4705a08ce117afa07d88f720cabfee38", "kind": "failed",
            "host": "gpu-node-00007", "node": "gpu-node-00007", "rank": 56, "pid": 4711,
            "text": text}


def long_job(nodes=1000, workers=8, run_id="llama-70b", ended=False,
             text="rank 56 on gpu-node-00007 exited with code 85"):
    """A day, 64 epochs, as many points and events as are kept."""
    time = dict(zip(PHASES, (320000, 76800, 51200, 160000, 1280000, 5760000)),
                productive_ms=DAY_MS - 7648000, steps_again=57600)
    return {
        "job": run_id, "name": run_id, "pid": None, "state": "done" if ended else "running",
        "cause": "failure", "result": "failure" if ended else "none", "text": text, "notice": "",
        "program": "train.py", "instance": "4705a08ce117afa07d88f720cabfee38", "epoch": EPOCHS,
        "node_count": nodes, "spare_count": 0, "worker_count": nodes * workers, "min_nodes": nodes,
        "max_nodes": nodes, "restarts": EPOCHS - 1, "max_restarts": 100,
        "goodput": time["productive_ms"] / DAY_MS, "time": time,
        "last_restart": {**epoch(EPOCHS, "")["lost"], "productive_ms": 1230000},
        "exit_code": 85 if ended else None, "step": 863990, "steps": 1000000, "age_ms": DAY_MS,
        "state_ms": 1330000, "started": "2026-11-23T02:49:48.509Z", "started_ms": BEGUN_MS,
        "ended": "2026-11-24T02:49:48.509Z" if ended else None,
        "ended_ms": BEGUN_MS + DAY_MS if ended else None,
        "failure": {"kind": "exit", "host": "gpu-node-00007", "rank": 56, "local_rank": 0,
                    "pid": 4711, "code": 85, "time": "2026-11-24T02:27:38.509Z",
                    "time_ms": BEGUN_MS + DAY_MS - 1330000, "said": text, "log": "/tmp/logs/56.err"},
        "report": None, "nodes": [node(i, workers) for i in range(nodes)],
        "history": {"curve": curve(), "epochs": [epoch(i + 1, text) for i in range(EPOCHS)],
                    "epochs_left_out": 12,
                    "events": [event(i + 1, run_id, text) for i in range(EVENTS)]}}
