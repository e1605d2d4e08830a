#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
# sanitizers: no, the unit tests of options read the same words
"""Every flag of crun, every wrong value, --help, --dry-run, the manual.

The flags are read from --help, so that one which this file does not know is a failure.
"""
import os
import re
import resource
import shutil
import socket
import subprocess
import sys
import tempfile

BUILD = os.path.abspath(os.environ.get("BUILD", "build"))
CRUN = BUILD + "/bin/crun"
ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../..")
MANUALS = {"crun": "launcher/man/crun.1", "train": "worker-lib/man/train.1",
           "coll-bench": "worker-lib/man/coll-bench.1"}
with open(os.path.join(ROOT, "rendezvous/common/base/version.h")) as header:
    VERSION = re.search(r'CRUN_VERSION "(.*)"', header.read()).group(1)
FLAG_OF_HELP = r"^  (?:-\w, |    )--?([a-z-]+)"
failures = 0

# These mean nothing without a list of hosts.
ABOUT_HOSTS = ("detach",)
# These need --on-event.
ABOUT_EVENTS = ("on-event-kinds",)

# flag: (a value, or None for a switch; what --dry-run then says, or None)
GOOD = {
    "nnodes": ("3", "GROUP_WORLD_SIZE=3"),
    "nproc-per-node": ("2", "LOCAL_WORLD_SIZE=2"),
    "np": ("2", "LOCAL_WORLD_SIZE=2"),
    "ppn": ("2", "LOCAL_WORLD_SIZE=2"),
    "node-rank": ("0", "GROUP_RANK=0"),
    "numa-binding": ("socket", None),
    "virtual-local-rank": (None, "CUDA_VISIBLE_DEVICES=0"),
    "role": ("trainer", "ROLE_NAME=trainer"),
    "hosts": ("a:8,b", None),
    "hostfile": ("hostfile", None),
    "env": ("NAME=value", None),
    "wdir": (".", None),
    "rsh": ("docker exec -i", None),
    "ssh-args": ("-p 2222", None),
    "host-prefix": (None, None),
    "detach": (None, None),
    "standalone": (None, "rendezvous: in this process"),
    "master-addr": ("127.0.0.1", "MASTER_ADDR=127.0.0.1"),
    "master-port": ("29777", "MASTER_PORT=29777"),
    "rdzv-endpoint": ("10.1.1.1", "10.1.1.1:29400"),
    "rdzv-backend": ("c10d", None),
    "rendezvous-user": ("root", None),
    "rdzv-id": ("my-job", "TORCHELASTIC_RUN_ID=my-job"),
    "rdzv-conf": ("is_host=1,lease=3", None),
    "key-file": ("no/such/key", None),
    "require-key": (None, None),
    "keep-env": ("PMI_RANK", None),
    "no-key-warning": (None, None),
    "local-addr": ("10.2.3.4", "MASTER_ADDR=10.2.3.4"),
    "store-port": ("29888", "MASTER_PORT=29888"),
    "store-auth": ("user", None),
    "store-tunnel": (None, None),
    "module": (None, "python3 -u -m "),
    "no-python": (None, None),
    "run-path": (None, "runpy.run_path"),
    "launch-compat": (None, "--local-rank=0"),
    "use-env": (None, None),
    "warm": (None, None),
    "watch": (None, None),
    "stdin": ("none", None),
    "start-method": ("fork", "--start-method has no effect"),
    "log-dir": ("logs", None),
    "log-mode": ("0640", None),
    "log-keep": ("10", None),
    "log-max-size": ("2G", None),
    "redirects": ("0:1,12:3", None),
    "tee": ("3", None),
    "local-ranks-filter": ("0,1", None),
    "duplicate-stdout-filters": ("a,b", None),
    "duplicate-stderr-filters": ("a,,b", None),
    "log-line-prefix-template": ("[${rank}]", None),
    "ignore-closed-output": (None, None),
    "events-file": ("events", None),
    "metrics-file": ("job.prom", None),
    "http": ("127.0.0.1:0", None),
    "http-name": ("train.example.org", None),
    "on-event": ("true", None),
    "on-event-kinds": ("failed,done", None),
    "event-log-handler": ("console", None),
    "logs-specs": ("default", None),
    "max-restarts": ("3", "TORCHELASTIC_MAX_RESTARTS=3"),
    "no-restart-on": ("2,127", None),
    "max-no-progress": ("2", None),
    "restart-min-uptime": ("30", None),
    "restart-backoff": ("0", None),
    "spares": ("1", None),
    "memory-copies": ("0", None),
    "memory-limit": ("40%", None),
    "memory-copy-rate": ("500M", None),
    "memory-flush": ("10m", None),
    "shutdown-timeout": ("1.5", None),
    "failure-grace": ("0", None),
    "outage-grace": ("10", None),
    "hang-timeout": ("auto", None),
    "silence-warning": ("60", None),
    "progress-pattern": (r"step[ =]+(\d+)", None),
    "checkpoint-signal": ("SIGUSR1", None),
    "time-limit": ("1:00:00", "# the time of this run ends at "),
    "time-limit-margin": ("30", None),
    "fence": ("strict", None),
    "signals-to-handle": ("SIGTERM,SIGUSR1",
                          "TORCHELASTIC_SIGNALS_TO_HANDLE=SIGTERM,SIGUSR1"),
    "monitor-interval": ("0.1", "--monitor-interval has no effect"),
    "dry-run": (None, "rank 0"),
    "preflight": (None, None),
    "verbose": (None, None),
    "version": (None, "crun " + VERSION),
    "help": (None, "usage: crun"),
}

# with a value after "=" or with none
OPTIONAL_VALUE = {"warm": "torch,numpy.linalg"}

BAD = {
    "rsh": [""],
    "ssh-args": [""],
    "nnodes": ["0", "2:1", "1:2:3", "x", "16385", ""],
    "nproc-per-node": ["0", "tow", "-1", "4097", ""],
    "node-rank": ["-1", "1", "x"],
    "np": ["0", "x", "-1", ""],
    "ppn": ["0", "tow", ""],
    "hosts": [""],
    "hostfile": [""],
    "env": ["", "=x", "1A=x", "A B=x", "A*=x"],
    "wdir": ["", "no/such/folder"],
    "numa-binding": ["near", ""],
    "master-addr": ["", "[::1", "a b"],
    "master-port": ["65536", "-1", "x", ""],
    "rdzv-endpoint": ["", ":1", "a:x", "a:65536", "a:1,"],
    "rdzv-backend": ["etcd", "etcd-v2", "x", ""],
    "rendezvous-user": ["", "no such user", "-1", "4294967295", "12x"],
    "rdzv-id": ["", "a/b", "a b", "ü", "a\nb", "x" * 129],
    "rdzv-conf": ["x", "=1", "lease=", "lease=0", "is_host=2", "store_type=file",
                  "scale=up", "quarantine=9", "join_timeout=-1", "keep_alive_max_attempt=0"],
    "key-file": [""],
    "local-addr": ["", "a b", "x" * 256],
    "store-port": ["65536", "x"],
    "store-auth": ["auto", "use", ""],
    "logs-specs": ["DOES_NOT_EXIST", ""],
    "warm": ["torch;x", "torch, x", "/x"],
    "stdin": ["1", ""],
    "start-method": ["x", ""],
    "log-dir": [""],
    "log-keep": ["", "0", "-1", "x", "1000001"],
    "log-max-size": ["", "0", "63K", "-1M", "1MB", "1T", "65535", "M"],
    "log-mode": ["", "640x", "0777", "0400", "1600", "00600"],
    "redirects": ["4", "0:4", "0:1,", "x", ""],
    "tee": ["4", "0:4", "0:1,", "x", ""],
    "local-ranks-filter": ["x", "0,", "-1"],
    "events-file": [""],
    "metrics-file": [""],
    "http": ["", "train.py", "99999", ":8080:", "host"],
    "http-name": [""],
    "on-event": [""],
    "on-event-kinds": ["", "failed,", "falied", "failed done"],
    "max-restarts": ["-1", "x", "1000001"],
    "no-restart-on": ["0", "256", "2,", ",2", "SIGTERM", "2 3"],
    "max-no-progress": ["-1", "x"],
    "restart-min-uptime": ["-1", "x"],
    "restart-backoff": ["-1", "x", ""],
    "spares": ["-1", "x", "16385"],
    "memory-copies": ["-1", "2", "x", ""],
    "memory-limit": ["", "0", "0%", "101%", "40%%", "x%", "63K", "1T"],
    "memory-copy-rate": ["", "0", "63K", "50%"],
    "memory-flush": ["-1", "x", ""],
    "shutdown-timeout": ["-1", "x", "", "5e3"],
    "failure-grace": ["-1", "x"],
    "outage-grace": ["0", "x"],
    "hang-timeout": ["x", "-1", ""],
    "silence-warning": ["x", "-1"],
    "progress-pattern": ["(", "step", ""],
    "checkpoint-signal": ["x", "SIGKILL"],
    "time-limit": ["x", "", "1:2:3:4", "1:60", "5x", "1-2"],
    "time-limit-margin": ["x", "0"],
    "fence": ["x", ""],
    "signals-to-handle": ["x", "SIGKILL", "", "SIGTERM,,SIGINT"],
    "monitor-interval": ["x", ""],
}


def fail(text):
    global failures
    failures += 1
    print("FAIL:", text)


def run(*words, env=None, **more):
    base = {k: v for k, v in os.environ.items()
            if not k.startswith(("PET_", "CRUN_", "TORCH", "OMP_", "CUDA_", "HIP_"))}
    return subprocess.run([CRUN, *words], capture_output=True, text=True, timeout=120,
                          env={**base, **(env or {})}, stdin=subprocess.DEVNULL, **more)


def refused(words, *parts, env=None):
    r = run(*words, env=env)
    if r.returncode != 2:
        fail(f"{words}: exit code {r.returncode}, not 2: {r.stderr}")
    if r.stdout:
        fail(f"{words}: writes to standard output")
    if r.stderr.count("\n") != 1 or not r.stderr.startswith("crun: "):
        fail(f"{words}: not one line of crun's: {r.stderr!r}")
    for part in parts:
        if part not in r.stderr:
            fail(f"{words}: {part!r} is not in {r.stderr!r}")


def flags_of_help():
    r = run("--help")
    if r.returncode or r.stderr:
        fail(f"--help: {r.returncode} {r.stderr}")
    if max(map(len, r.stdout.split("\n"))) > 80:
        fail("--help has a line of more than 80 characters")
    return re.findall(FLAG_OF_HELP, r.stdout, re.M)


def check_good(flags):
    for flag in flags:
        if flag not in GOOD:
            fail(f"--{flag} is not known to this test")
            continue
        value, says = GOOD[flag]
        others = ["-H", "a,b"] if flag in ABOUT_HOSTS else \
            ["--on-event=true"] if flag in ABOUT_EVENTS else []
        forms = [["--" + flag]] if value is None else [
            [f"--{flag}={value}"], ["--" + flag, value]]
        forms += [[form[0].replace("--" + flag, "--" + flag.replace("-", "_")),
                   *form[1:]] for form in forms if "-" in flag]
        for form in forms:
            accepted(form + others, says, {})
        name = flag.upper().replace("-", "_")
        if flag not in ("help", "version"):
            accepted(others, says, {"PET_" + name: value or "1"})
            accepted(others, says, {"CRUN_" + name: value or "1", "PET_" + name: "0"})
    for flag, value in OPTIONAL_VALUE.items():
        accepted([f"--{flag}={value}"], None, {})
        accepted([], None, {"CRUN_" + flag.upper(): value})
    for flag in set(GOOD) - set(flags):
        fail(f"--{flag} is not in --help")


def accepted(form, says, env):
    r = run(*form, "--dry-run", "./prog.py", env=env)
    text = r.stdout + r.stderr
    if r.returncode or (says and says not in text):
        fail(f"{form} {env}: exit code {r.returncode}, says {text!r}")


def check_bad(flags):
    for flag in flags:
        for value in BAD.get(flag, []):
            words = ["--nnodes=1" if flag != "rdzv-endpoint" else "--nnodes=2",
                     f"--{flag}={value}"]
            if flag == "master-addr":
                words.append("--nnodes=2")
            refused([*words, "./prog.py"], "--" + flag)
        if flag in OPTIONAL_VALUE or flag not in GOOD:  # that was said
            continue
        if GOOD[flag][0] is None:
            refused([f"--{flag}=1", "./prog.py"], f"--{flag} takes no value")
        else:
            refused(["--" + flag], f"--{flag} needs a value")
    refused([], "a program is missing")
    refused(["--nproc-per-nod=x", "./prog.py"], "--nproc-per-node", '"x"')
    refused(["--nproc-per-mode=2", "./prog.py"], "did you mean --nproc-per-node?")
    refused(["--redirect", "x", "./prog.py"], "--redirects")
    refused(["-z", "./prog.py"], "-z")
    refused(["-np", "x", "./prog.py"], "-np: ")
    refused(["./nosuch.py"], "./nosuch.py: no such file")
    refused(["nosuch.py"], "nosuch.py: no such file (looked in the working directory, "
                           "in PATH and in crun's folder)")
    refused(["nosuch"], "nosuch: no such file (looked in the working directory, "
                       "in PATH and in crun's folder)")
    refused(["./plain"], "./plain is not executable")
    refused(["-m", "--no-python", "prog"], "--module and --no-python")
    refused(["--standalone", "--nnodes=2", "./prog.py"], "--standalone")
    refused(["./prog.py"], "CRUN_NNODES", '"x"', env={"CRUN_NNODES": "x"})
    refused(["./prog.py"], "PET_NNODES", env={"PET_NNODES": "x"})
    refused(["./prog.py"], "PYTHON_EXEC", env={"PYTHON_EXEC": "nosuch"})
    refused(["./prog.py"], "TORCH_ELASTIC_SHUTDOWN_TIMEOUT",
            env={"TORCH_ELASTIC_SHUTDOWN_TIMEOUT": "x"})


# What users of other programs type: (words, what crun says)
HABITS = [
    (["-N", "2"], "unknown flag -N; did you mean --nnodes=2?"),
    (["-N2"], "unknown flag -N; did you mean --nnodes=2?"),
    (["--nodes=2"], "did you mean --nnodes=2?"),
    (["--ntasks=8"], "did you mean --np=8?"),
    (["--ntasks-per-node", "4"], "did you mean --nproc-per-node=4?"),
    (["--nprocs=4"], "unknown flag --nprocs; did you mean --nproc-per-node=4?"),
    (["--gpus", "4"], "did you mean --nproc-per-node=4?"),
    (["--num_gpus=4"], "did you mean --nproc_per_node=4?"),
    (["--devices=auto"], "did you mean --nproc-per-node?"),
    (["--num_processes=4"], "did you mean --np=4?"),
    (["--num_machines=2"], "did you mean --nnodes=2?"),
    (["--machine_rank=1"], "did you mean --node_rank=1?"),
    (["--main_process_ip=a"], "did you mean --master_addr?"),
    (["--machinefile=a"], "did you mean --hostfile?"),
    (["--multi_gpu"], "did you mean --nproc_per_node=gpu?"),
    (["status"], 'no program "status" here: did you mean crunctl status?'),
    (["logs"], "did you mean crunctl logs?"),
    # flags are called as they were typed
    (["--nproc_per_node=x"], "crun: --nproc_per_node: "),
    (["--nproc_per=gpu"], "crun: --nproc_per_node: "),
    (["--nproc_per_node"], "--nproc_per_node needs a value: --nproc_per_node N|"),
    (["--nproc_per_mode=2"], "did you mean --nproc_per_node?"),
    (["--virtual_local_rank=1"], "--virtual_local_rank takes no value"),
    (["--node_rank=1"], "crun: --node_rank: "),
    (["-r", "x"], "crun: -r: "),
    (["--hostfile=/dev/null", "--standalone"], "--standalone and a list"),
    # addresses
    (["--nnodes=2", "--master_addr=http://10.0.0.1"],
     '--master_addr: "http://10.0.0.1" is a URL and not an address'),
    (["--nnodes=2", "--rdzv-endpoint=tcp://a:1"], "is a URL and not an address"),
    (["--nnodes=2", "--master-addr=29500"],
     '--master-addr: "29500" is not an address; a port is given by --master-port'),
    (["--nnodes=2", "--rdzv-endpoint=65536"], "is not a port from 0 to 65535"),
    (["--nproc-per-node=2", "--local-ranks-filter=2,5"],
     '--local-ranks-filter: "2,5" has none of the local ranks of 2 workers, 0 to 1'),
    # times
    (["--hang-timeout=5x"], '"5x" is not auto, or a time from 0 to 100000 s'),
    (["--shutdown-timeout=1h30"], "is not a time from 0 to "),
    (["--rdzv-conf=lease=5x"], 'lease: "5x" is not a time from 0.2 to'),
    # flags that were removed
    (["--print-completion=bash"], "make install installs it"),
    (["--tree-above=4"], "crun connects to all hosts itself"),
    (["--host-discovery=./hosts"], "write its output to the file of --hostfile"),
    (["--include=a:0,2"], "-H names the hosts, and -x CUDA_VISIBLE_DEVICES=0,2 their GPUs"),
]

TIMES = ["shutdown-timeout", "failure-grace", "outage-grace", "hang-timeout",
         "silence-warning", "restart-min-uptime", "restart-backoff", "memory-flush", "time-limit",
         "time-limit-margin", "monitor-interval"]


def check_habits():
    for words, says in HABITS:
        refused([*words, "./prog.py"] if words[0][0] == "-" and "needs" not in says
                else words, says, env={"PATH": "/nowhere"})
    for flag in TIMES:
        for value in ("5m", "1h30m", "90s", "1500ms"):
            accepted([f"--{flag}={value}"], None, {})
            accepted([], None, {"CRUN_" + flag.upper().replace("-", "_"): value})
    accepted(["--rdzv-conf=lease=1m,join_timeout=2h,last_call_timeout=500ms"], None, {})
    accepted([], None, {"TORCH_ELASTIC_SHUTDOWN_TIMEOUT": "2m"})


def check_unused_variables():
    """A job of one node where other launchers' variables tell of several says so."""
    says = "in the environment: not used"
    for env, warns in (({"MASTER_ADDR": "10.0.0.1", "NODE_RANK": "1"}, True),
                       ({"NODE_RANK": "1"}, True),
                       ({"WORLD_SIZE": "2", "MASTER_PORT": "1"}, True),
                       ({"MASTER_ADDR": "localhost", "WORLD_SIZE": "1"}, False),
                       ({"WORLD_SIZE": "2", "TORCHELASTIC_RUN_ID": "x"}, False)):
        for words in ([], ["--nnodes=1"], ["--standalone"]):
            r = run(*words, "true", env=env)
            if r.returncode or (says in r.stderr) != (warns and not words) or \
                    r.stderr.count("\n") != (warns and not words):
                fail(f"{env} {words}: {r}")


def check_read_only_log_dir():
    os.mkdir("mounted")
    r = subprocess.run(["unshare", "-Urm", "sh", "-c",
                        "mount -t tmpfs -o ro none mounted || exit 77; "
                        f"exec {CRUN} --log-dir=mounted/a/b -r3 true"],
                       capture_output=True, text=True)
    if r.returncode == 77 or "unshare" in r.stderr:
        print("no mounts here:", r.stderr)
    elif r.returncode != 2 or "mounted/a: Read-only file system" not in r.stderr:
        fail(f"a read-only file system: {r}")


def check_slurm():
    """Of two tasks on a node one reports the mistake; torchrun's defaults are its own."""
    host = socket.gethostname()
    job = {"SLURM_JOB_ID": "1", "SLURM_JOB_NUM_NODES": "2", "SLURMD_NODENAME": host,
           "SLURM_JOB_NODELIST": host + ",x"}
    step = {**job, "SLURM_STEP_ID": "0", "SLURM_STEP_NUM_NODES": "1", "SLURM_NODEID": "0",
            "SLURM_STEP_NODELIST": host, "SLURM_STEP_NUM_TASKS": "2", "SLURM_PROCID": "0",
            "SLURM_STEP_TASKS_PER_NODE": "2"}
    refused(["./prog.py"], "2 tasks on this node", env={**step, "SLURM_LOCALID": "0"})
    r = run("./prog.py", env={**step, "SLURM_LOCALID": "1"})
    if r.returncode != 2 or r.stderr:
        fail(f"the second task of a node: {r}")
    r = run("--dry-run", "./prog.py", env=job)
    if "starting crun on each: srun " not in r.stderr:
        fail(f"crun in a batch script: {r}")
    os.makedirs("bin", exist_ok=True)
    os.symlink(CRUN, "bin/torchrun")
    r = subprocess.run(["bin/torchrun", "--dry-run", "./prog.py"], capture_output=True,
                       text=True, env={**os.environ, **job})
    if r.returncode or "WORLD_SIZE=1" not in r.stdout or "srun" in r.stderr:
        fail(f"torchrun in a batch script: {r}")


def check_ports():
    """Digits alone are a port of this machine, and not the IPv4 number 0.0.x.y."""
    accepted(["--nnodes=2", "--rdzv-endpoint=29444"], "127.0.0.1:29444", {})
    accepted(["--nnodes=2"], "127.0.0.1:29444", {"PET_RDZV_ENDPOINT": "29444"})
    with socket.create_server(("127.0.0.1", 0)) as s:  # it says nothing
        port = str(s.getsockname()[1])
        r = subprocess.run([f"{BUILD}/bin/crunctl", "-e", port, "--timeout=100ms", "status"],
                           capture_output=True, text=True)
        s.settimeout(10)
        s.accept()[0].close()
        if r.returncode != 69:
            fail(f"crunctl -e {port}: {r}")
        r = subprocess.run([f"{BUILD}/bin/crund", "--allow-root", "--listen", port],
                           capture_output=True, text=True)
        if not r.returncode or f"port {port} is in use" not in r.stderr:
            fail(f"crund --listen {port}: {r}")


def check_names():
    """A link's name is the program's, in usage, version and messages."""
    for name in ("tcrun", "torchrun"):
        os.symlink(CRUN, name)
        for words, code, says in ((["--version"], 0, f"{name} {VERSION} "),
                                  (["-h"], 0, f"usage: {name} "),
                                  (["--help"], 0, f"usage: {name} "),
                                  (["--nosuch"], 2, f"{name}: unknown flag"),
                                  (["-v", "./prog.py"], 0, f"{name}: debug: "),
                                  ([], 2, f"{name}: a program is missing ({name} -h)")):
            r = subprocess.run(["./" + name, *words], capture_output=True, text=True)
            text = r.stdout + r.stderr
            if r.returncode != code or not text.startswith(says) or "crun: " in \
                    text.replace(f"{name}: ", "") or "usage: crun" in text:
                fail(f"{name} {words}: {r}")
    for name in ("crun", "crunctl", "crund"):
        path = os.path.join(os.path.dirname(CRUN), name)
        for flag in ("--version", "-V"):
            r = subprocess.run([path, flag], capture_output=True, text=True)
            if not re.fullmatch(name + r" \d+\.\d+\.\d+( \([0-9a-f]{8,}, 2\d{3}-\d\d-\d\d\))?, "
                                "[a-z ]+\n", r.stdout):
                fail(f"{name} {flag}: {r.stdout!r}")
        r = subprocess.run([path, "-h"], capture_output=True, text=True)
        lines = r.stdout.split("\n")
        if r.returncode or not 10 <= len(lines) <= 28 or max(map(len, lines)) > 80 or \
                "Examples:\n" not in r.stdout:
            fail(f"{name} -h: {r.returncode} {r.stdout}")


def check_dry_run():
    """What is printed can be typed, and does what crun would have done."""
    words = ["sh", "-c", 'echo "$RANK $WORLD_SIZE $ROLE_NAME" "$@"', "sh", "it's", "",
             "${local_rank}", "a  b", "$HOME", "\\", "\n"]
    flags = ["--nproc-per-node=2", "--role=a b'c"]
    dry, real = run("--dry-run", *flags, *words), run(*flags, *words)
    if dry.returncode or dry.stderr:
        fail(f"--dry-run: {dry.returncode} {dry.stderr}")
    env = run("env").stdout  # a variable whose value is not known yet is named
    for name in re.findall("^(CRUN_[A-Z]*)=", env, re.M):
        if f"{name}=" not in dry.stdout and name not in os.environ:
            fail(f"--dry-run does not show {name}")
    typed = subprocess.run(["sh"], input=dry.stdout, capture_output=True, text=True,
                           timeout=90)
    if typed.stderr or sorted(typed.stdout) != sorted(real.stdout) or not typed.stdout:
        fail(f"--dry-run typed: {typed.stdout!r} {typed.stderr!r}; "
             f"run: {real.stdout!r} {real.stderr!r}")


def check_prefixes_and_ends():
    for words in (["--nproc", "2"], ["--nproc_per", "2"], ["--nproc-per-node=02"]):
        r = run(*words, "--dry-run", "./prog.py")
        if "LOCAL_WORLD_SIZE=2" not in r.stdout:
            fail(f"{words}: {r.stdout} {r.stderr}")
    r = run("--dry-run", "--", "./prog.py", "--nnodes", "--", "-v")
    if "./prog.py --nnodes -- -v\n" not in r.stdout:
        fail(f"the program's own flags: {r.stdout}")
    r = run("--dry-run", "./prog.py", "--", "--", "-v")  # as torchrun
    if "./prog.py -- -v\n" not in r.stdout:
        fail(f"dashes: {r.stdout}")
    r = run("-vr3", "-t", "1", "--dry-run", "./prog.py")
    if r.returncode:
        fail(f"letters together: {r.stderr}")


def check_as_torchrun():
    for words, said in (([], "no command is given"), (["--warm", "true"], "comes first, not --warm; ")):
        r = run("as-torchrun", *words)
        if r.returncode != 2 or said not in r.stderr or r.stderr.count("\n") != 1:
            fail(f"as-torchrun {words}: {r}")


def check_every_program():
    for name in ("crun", "crund", "crunctl", "train", "coll-bench", "crun-preflight"):
        program = os.path.join(os.path.dirname(CRUN), name)
        if not os.path.exists(program):
            continue  # needs a library that is not here
        for flag, begins in (("--help", "usage: "), ("--version", f"{name} ")):
            r = subprocess.run([program, flag], capture_output=True, text=True)
            if r.returncode or r.stderr or not r.stdout.startswith(begins):
                fail(f"{name} {flag}: {r}")
        r = subprocess.run([program, "--nonsense"], capture_output=True, text=True)
        if not r.returncode or r.stdout or "unknown flag --nonsense" not in r.stderr:
            fail(f"{name} --nonsense: {r}")


def check_full_disk():
    for question in ("--help", "--version"):
        with open("/dev/full", "w") as full:
            code = subprocess.run([CRUN, question], stdout=full,
                                  stderr=subprocess.DEVNULL).returncode
        if code == 0:
            fail(f"{question} into a full disk: exit code 0")


def check_manual(program):
    done = subprocess.run([f"{BUILD}/bin/{program}", "--help"], capture_output=True, text=True)
    flags = re.findall(FLAG_OF_HELP, done.stdout, re.M)
    with open(os.path.join(ROOT, MANUALS[program])) as f:
        text = f.read().replace("\\-", "-").replace("\\&", "")
    items = re.findall(r"^\.It (Fl .*)$", text, re.M)
    listed = re.findall(r"(?:Fl|,) -?([a-z-]{2,})", "\n".join(items))
    for flag in sorted(set(flags) - set(listed)):
        fail(f"the manual of {program} does not list --{flag}")
    for flag in sorted(set(listed) - set(flags)):
        fail(f"the manual of {program} lists --{flag}, which is none")


def check_closed_descriptors():
    r = subprocess.run(["sh", "-c", f'"{CRUN}" sh -c ": >ran" <&- >&- 2>&-'], timeout=90)
    if r.returncode or not os.path.exists("ran"):
        fail(f"without descriptors: exit code {r.returncode}")


def check_limits():
    """crun takes all descriptors that it may have; its workers have what it had."""
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    r = run("sh", "-c", "ulimit -Sn; ulimit -Hn", preexec_fn=lambda: resource.setrlimit(
        resource.RLIMIT_NOFILE, (200, hard)))
    if r.stdout.split() != ["200", str(hard)]:
        fail(f"a worker's limits of descriptors: {r.stdout} {r.stderr}")


def main():
    directory = tempfile.mkdtemp()
    os.environ["CRUN_RUNTIME_DIR"] = directory  # no launch of another test is swept up here
    os.chdir(directory)
    try:
        with open("prog.py", "w") as f:
            f.write("#!/usr/bin/env python3\n")
        os.chmod("prog.py", 0o755)
        with open("hostfile", "w") as f:
            f.write("a slots=8\nb slots=8\n")
        with open("plain", "wb") as f:
            f.write(b"\0")
        flags = flags_of_help()
        check_good(flags)
        check_bad(flags)
        check_habits()
        check_unused_variables()
        check_read_only_log_dir()
        check_slurm()
        check_ports()
        check_names()
        check_prefixes_and_ends()
        check_as_torchrun()
        check_dry_run()
        check_every_program()
        check_full_disk()
        for program in MANUALS:
            check_manual(program)
        check_closed_descriptors()
        check_limits()
    finally:
        shutil.rmtree(directory)
    sys.exit(1 if failures else 0)


main()
