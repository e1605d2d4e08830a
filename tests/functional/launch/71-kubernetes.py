#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
# takes: 20 s
# sanitizers: no, its cases wait most of the time, and other tests run the same code
"""
The recipes of scripts/kubernetes, each run as the manifest says in what a process sees of a pod
(tests/lib/pods.py): names that DNS knows late, pods that are lost and come back with another
address, the address of a Service, IPv6 alone. The cases wait most of the time: they run side by
side.
"""
import concurrent.futures
import contextlib
import os
import pathlib
import re
import signal
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, __file__.rsplit("/functional/", 1)[0] + "/lib")
from process import BIN, ROOT, Process, expect, fail, free_port, same, slowdown, until  # noqa: E402
import host  # noqa: E402
import pods  # noqa: E402

RECIPES = ROOT / "scripts" / "kubernetes"
LATE = 8  # seconds until the names are there
NOT_FOUND = "waiting for the rendezvous (cannot find host"

# It says what it sees, asks the store of rank 0, and runs until the test lets it end.
TRAIN = """
import os, socket, struct, time
def ask_store():
    where = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
    with socket.create_connection(where, timeout=90) as s:
        s.sendall(struct.pack("<BI", 0, 0x3C85F7CE) + struct.pack("<BI", 13, 4711))
        return s.recv(4) == struct.pack("<I", 4711)
def can_write():
    try:
        open("/crun-was-here", "w")
        return True
    except OSError:
        return False
e = os.environ
facts = {"rank": e["RANK"], "world": e["WORLD_SIZE"], "group": e["GROUP_RANK"],
         "epoch": e["CRUN_EPOCH"], "restart": e["TORCHELASTIC_RESTART_COUNT"],
         "master": e["MASTER_ADDR"], "run": e["TORCHELASTIC_RUN_ID"], "uid": os.getuid(),
         "first": open("/proc/1/comm").read().strip(), "writes": can_write(),
         "store": "NO_STORE" in e or ask_store()}
print(" ".join(f"{k}={v}" for k, v in facts.items()), flush=True)
while not os.path.exists("/srv/enough"):
    time.sleep(0.02)
"""


def world_of(recipe, make, version=4):
    world = pods.World(version)
    world.recipe = lambda: make(world, pods.documents(RECIPES / recipe))
    return world


def facts_of(*processes, epoch="1"):
    """{rank: facts} of that epoch's workers."""
    found = {}
    for p in processes:
        for line in p.out.splitlines():
            facts = dict(re.findall(r"(\w+)=(\S+)", line))
            if facts.get("epoch") == epoch:
                found[int(facts["rank"])] = facts
    return found


def all_run(*processes, epoch="1"):
    """Until all ranks of the epoch have said something; their facts."""
    def they_run():
        found = facts_of(*processes, epoch=epoch)
        return found and len(found) == int(found[min(found)]["world"]) and found

    return until(they_run, lambda: "all run: " + "".join(p.out + p.err for p in processes))


def end_well(world, *processes):
    world.write_program("enough", "")
    for p in processes:
        expect(p, 0)


def check_facts(found, master, run="none"):
    if sorted(found) != list(range(len(found))) or len(found) % 2:
        fail("ranks", found)
    for rank, facts in found.items():
        wanted = {"world": str(len(found)), "group": str(rank // (len(found) // 2)),
                  "restart": "0", "master": master, "run": run, "uid": "1000", "first": "crun",
                  "writes": "False", "store": "True"}
        same({k: facts[k] for k in wanted}, wanted)


# -- the manifests --------------------------------------------------------------------

# The fields that the recipes use, as the types of their versions define them: batch/v1, v1,
# jobset.x-k8s.io/v1alpha2 (the CRDs of JobSet 0.9 to 0.12 took jobset.yaml), and
# trainer.kubeflow.org/v1alpha1 (those of Kubeflow Trainer 2.3.0 took trainjob.yaml and runtimes.yaml),
# with unknown fields refused. A list has the fields of its items; None: any value, str and the like:
# one of that type.
EXIT_CODES = {"operator": str, "values": None}
VARIABLE = {"name": str, "value": str, "valueFrom": {"fieldRef": {"fieldPath": str}}}
RESOURCES = {"limits": None}
CONTAINER = {"name": str, "image": str, "command": None, "env": [VARIABLE], "resources": RESOURCES,
             "securityContext": {"readOnlyRootFilesystem": bool},
             "volumeMounts": [{"name": str, "mountPath": str, "readOnly": bool}]}
POD = {"subdomain": str, "restartPolicy": str, "enableServiceLinks": bool,
       "terminationGracePeriodSeconds": int, "initContainers": [CONTAINER], "containers": [CONTAINER],
       "securityContext": {"runAsNonRoot": bool, "runAsUser": int, "runAsGroup": int,
                           "fsGroup": int},
       "volumes": [{"name": str, "emptyDir": {"medium": str},
                    "secret": {"secretName": str, "defaultMode": int}}]}
META = {"name": str, "labels": None}
JOB = {"completions": int, "parallelism": int, "completionMode": str, "backoffLimit": int,
       "podFailurePolicy": {"rules": [{"action": str, "onPodConditions": [{"type": str, "status": str}],
                                       "onExitCodes": EXIT_CODES}]},
       "template": {"spec": POD}}
JOBSET = {"network": {"enableDNSHostnames": bool, "subdomain": str,
                      "publishNotReadyAddresses": bool},
          "failurePolicy": {"maxRestarts": int, "rules": [{"name": str, "action": str,
                                                           "onJobFailureReasons": None}]},
          "replicatedJobs": [{"name": str, "replicas": int,
                              "template": {"metadata": META, "spec": JOB}}]}
KINDS = {
    "Service": {"clusterIP": str, "publishNotReadyAddresses": bool, "selector": None,
                "ports": [{"name": str, "port": int}]},
    "Job": JOB,
    "JobSet": JOBSET,
    "ClusterTrainingRuntime": {"mlPolicy": {"numNodes": int, "torch": {}, "jax": {}},
                               "template": {"spec": JOBSET}},
    "TrainJob": {"runtimeRef": {"name": str},
                 "trainer": {"image": str, "command": None, "numNodes": int,
                             "resourcesPerNode": RESOURCES}},
}


def check_fields(value, known, where):
    if isinstance(known, dict):
        for name, inner in value.items():
            if name not in known:
                fail(f"{where} has no field {name}")
            check_fields(inner, known[name], f"{where}.{name}")
    elif isinstance(known, list):
        for i, inner in enumerate(value):
            check_fields(inner, known[0], f"{where}[{i}]")
    elif known and not isinstance(value, known):
        fail(f"{where} is {value!r}, not {known.__name__}")


def the_manifests_are_sound():
    for recipe in sorted(RECIPES.glob("*.yaml")):
        docs = pods.documents(recipe)
        for doc in docs:
            check_fields(doc["spec"], KINDS[doc["kind"]], f"{recipe.name}: {doc['kind']}")
            check_fields(doc["metadata"], META, f"{recipe.name}: metadata")
        text = recipe.read_text()
        grace = int(re.search(r"terminationGracePeriodSeconds: (\d+)", text)[1])
        if grace < int(re.search(r"--shutdown-timeout=(\d+)", text)[1]) + 5:
            fail(recipe, "kills crun before it has ended the workers")
        if not re.search(r"\[(/opt/crun/bin/)?crun, ", text) or "publishNotReadyAddresses: true" not in text:
            fail(recipe, "has no crun as process 1, or no names of pods that are not ready")
        if text.count("type: DisruptionTarget\n") != text.count('status: "True"'):
            fail(recipe, "is refused by JobSet 0.9 and 0.10: a condition has no status")
        nodes = {int(n) for n in re.findall(r"(?:completions|parallelism|numNodes): (\d+)", text)}
        if not nodes <= {1, 2} or "--nnodes=2" not in text and "numNodes: 2" not in text:
            fail(recipe, "has several numbers of nodes:", nodes)


# -- runtimes for images without crun -------------------------------------------------

# What the policies of the trainer tell each pod.
POLICIES = {"torch": {"PET_NNODES": "{nodes}", "PET_NODE_RANK": "{rank}", "PET_NPROC_PER_NODE": "1",
                      "PET_MASTER_ADDR": "127.0.0.1", "PET_MASTER_PORT": "{port}"},
            "jax": {"JAX_NUM_PROCESSES": "{nodes}", "JAX_PROCESS_ID": "{rank}",
                    "JAX_COORDINATOR_ADDRESS": "127.0.0.1:{port}"}}


def runtimes_bring_crun_along():
    """The init container copies what make install has installed, and the copy runs a job of two."""
    with tempfile.TemporaryDirectory(prefix="crun-") as place:
        subprocess.run(["make", "-s", f"B={BIN.parent}", "install", f"DESTDIR={place}",
                        "PREFIX=/usr/local"], cwd=ROOT, check=True, stdout=subprocess.DEVNULL)
        pathlib.Path(place, "train.py").write_text(
            "import os\nprint('rank', os.environ['RANK'], 'of', os.environ['WORLD_SIZE'])\n")
        for runtime in pods.documents(RECIPES / "runtimes.yaml"):
            pod = runtime["spec"]["template"]["spec"]["replicatedJobs"][0]["template"]["spec"][
                "template"]["spec"]
            volume = os.path.join(place, runtime["metadata"]["name"])
            os.mkdir(volume)

            def here(words):
                return [w.replace("/opt/crun", volume).replace("/usr/local", f"{place}/usr/local")
                        for w in words]

            subprocess.run(here(pod["initContainers"][0]["command"]), check=True)
            policy = next(key for key in runtime["spec"]["mlPolicy"] if key in POLICIES)
            port = free_port()
            ends = [Process(here(pod["containers"][0]["command"]), cwd=place, env={
                **os.environ, "TMPDIR": place, **{name: value.format(nodes=2, rank=rank, port=port)
                                                  for name, value in POLICIES[policy].items()}})
                    for rank in range(2)]
            for p in ends:
                p.expect(0)
            same(sorted("".join(p.out for p in ends).splitlines()), ["rank 0 of 2", "rank 1 of 2"])


# -- names that appear late -----------------------------------------------------------


def start_without_names(world):
    """All pods of the recipe; and the moment when their names may appear."""
    world.write_program("train.py", TRAIN)
    started = world.recipe()
    began = time.monotonic()
    running = [p.start() for p in started]
    until(lambda: all(NOT_FOUND in p.err for p in running[1:]), "they wait for the name")
    until(lambda: time.monotonic() > began + LATE, "it is late")
    return started, running


def late_names(recipe, make, master, run="none"):
    with world_of(recipe, make) as world:
        started, running = start_without_names(world)
        if "taken for this machine by its name" not in running[0].err:
            fail("node rank 0 has not begun to listen:", running[0].err)
        for p in started:
            p.publish()
        check_facts(all_run(*running), master, run)
        end_well(world, *running)


def late_names_of_an_indexed_job():
    late_names("indexed-job.yaml", pods.pods_of_job, "train-0.train")


def late_names_of_a_jobset():
    late_names("jobset.yaml", pods.pods_of_jobset, "train-node-0-0.train", "train.0")


def late_names_of_a_trainjob():
    late_names("trainjob.yaml", pods.pods_of_trainjob, "train-node-0-0.train")


ELASTIC = ["crun", "--nnodes=2", "--rdzv-backend=c10d", "--rdzv-endpoint=lead.train:29400",
           "--rdzv-id=job", "train.py"]


def late_names_of_a_dynamic_rendezvous():
    """Its name is that of no pod: only the answer of DNS says who hosts it."""
    with world_of("indexed-job.yaml", pods.pods_of_job) as world:
        world.write_program("train.py", TRAIN)
        both = world.recipe()
        running = [p.start(*ELASTIC) for p in both]
        asked = f"lead.train.{pods.DOMAIN}"
        until(lambda: world.dns.out.count(asked) >= 4, "both look the name up, and again")
        # the first answer is wrong: nothing listens there
        world.set_name(asked, world.dns_addresses)
        until(lambda: all("waiting for the rendezvous (10.77.0.254:29400: Connection refused" in
                          p.err for p in running),
              lambda: f"the reason is the newest: {running[0].err}")
        world.set_name(f"lead.train.{pods.DOMAIN}", both[1].addresses)
        all_run(*running)
        end_well(world, *running)


def a_name_that_never_means_this_node_is_told():
    with world_of("indexed-job.yaml", pods.pods_of_job) as world:
        world.write_program("train.py", TRAIN)
        started = world.recipe()
        first = started[0].start()
        world.set_name(started[0].full_name, ["10.77.0.200"])
        wanted = ("the other nodes look for this one at train-0.train, which is 10.77.0.200, not "
                  "an address of this machine")
        until(lambda: wanted in first.err, lambda: f"a warning: {first.err}")
        os.kill(started[0].main_pid(), signal.SIGINT)
        expect(first, 130)


# -- pods that come and go ------------------------------------------------------------


def lost_pods_come_back():
    with world_of("indexed-job.yaml", pods.pods_of_job) as world:
        world.write_program("train.py", TRAIN)
        both = world.recipe()
        running = [p.start() for p in both]
        for p in both:
            p.publish()
        all_run(*running)
        os.kill(both[1].main_pid(), signal.SIGKILL)
        running[1].wait()
        before = both[1].addresses
        running[1] = both[1].start()
        both[1].publish()
        if both[1].addresses == before:
            fail("it has its address again")
        check_facts(all_run(*running, epoch="2"), "train-0.train")
        # the pod of node rank 0: the job ends, and both come back
        for pid in [p.main_pid() for p in both]:
            with contextlib.suppress(ProcessLookupError):  # the end of the first ends the second
                os.kill(pid, signal.SIGTERM)
        for p in running:
            expect(p, 143)
        running = [p.start() for p in both]  # DNS still has the old address of the first
        until(lambda: "waiting for the rendezvous (10.77.0." in running[1].err,
              lambda: f"the address of before is tried: {running[1].err}")
        both[0].publish()
        check_facts(all_run(*running), "train-0.train")
        end_well(world, *running)


# -- addresses ------------------------------------------------------------------------

PROXY = """
import asyncio, sys
async def copy(reader, writer):
    try:
        while data := await reader.read(65536):
            writer.write(data)
            await writer.drain()
    finally:
        writer.close()
async def connected(reader, writer):
    there = await asyncio.open_connection(sys.argv[3], int(sys.argv[2]))
    await asyncio.gather(copy(reader, there[1]), copy(there[0], writer), return_exceptions=True)
async def main():
    server = await asyncio.start_server(connected, sys.argv[1], int(sys.argv[2]))
    print("ready", flush=True)
    await server.serve_forever()
asyncio.run(main())
"""


def address_of_a_service(*flags, says):
    """A virtual address that leads to node rank 0, which does not know it."""
    with world_of("indexed-job.yaml", pods.pods_of_job) as world:
        world.write_program("train.py", TRAIN)
        both = world.recipe()
        for p in both:
            p.extra = {"CRUN_MASTER_ADDR": "10.77.0.253", "NO_STORE": "1"}
        command = both[0].container["command"]
        world.set_addresses(world.switch, "br0", ["10.77.0.253"])
        running = [p.start(*command[:-1], *(flags if p.index == 0 else ()), command[-1])
                   for p in both]
        until(lambda: says in running[0].err, lambda: f"{says!r}: {running[0].err}")
        proxy = world.run_in(world.switch, "python3", "-c", PROXY, "10.77.0.253", "29500",
                             both[0].addresses[0])
        until(lambda: "ready" in proxy.out, lambda: proxy.err)
        same(all_run(*running)[0]["master"], "10.77.0.253")
        end_well(world, *running)
        same(running[0].err.count("is not an address of this machine"), 1)


def the_address_of_a_service_leads_to_node_rank_0():
    address_of_a_service(says="10.77.0.253 is not an address of this machine, which has 10.77.0.")


def the_address_of_a_service_by_intent():
    address_of_a_service("--rdzv-conf=is_host=1", says="10.77.0.253 is not an address")


def a_name_with_several_addresses():
    """The first is of no machine, and gives no answer: it costs little time."""
    with world_of("indexed-job.yaml", pods.pods_of_job) as world:
        world.write_program("train.py", TRAIN)
        both = world.recipe()
        running = [both[0].start()]
        world.set_name(both[0].full_name, ["10.99.0.1", *both[0].addresses])
        began = time.monotonic()
        running.append(both[1].start())
        host.ip("route", "add", "10.99.0.0/24", "via", "10.77.0.254", ns=both[1].ns)
        host.ip("route", "add", "blackhole", "10.99.0.0/24", ns=world.switch)
        all_run(*running)
        if time.monotonic() - began > 10 * slowdown():
            fail("it took", time.monotonic() - began, "s")
        end_well(world, *running)


def services_whose_names_look_like_settings():
    """A Service's variables are in every pod of its namespace, unless the pod wants none."""
    with world_of("indexed-job.yaml", pods.pods_of_job) as world:
        world.write_program("train.py", TRAIN)
        for service in ("CRUN_MASTER", "CRUN_STORE", "PET_MASTER", "MASTER", "CRUND"):
            url = "tcp://10.96.0.12:29500"
            world.service_links.update({
                f"{service}_SERVICE_HOST": "10.96.0.12", f"{service}_SERVICE_PORT": "29500",
                f"{service}_PORT": url, f"{service}_PORT_29500_TCP": url,
                f"{service}_PORT_29500_TCP_PROTO": "tcp", f"{service}_PORT_29500_TCP_PORT": "29500",
                f"{service}_PORT_29500_TCP_ADDR": "10.96.0.12"})
        both = world.recipe()
        for p in both:
            p.spec["enableServiceLinks"] = True
        running = [p.start() for p in both]
        for p in both:
            p.publish()
        check_facts(all_run(*running), "train-0.train")
        end_well(world, *running)


def ipv6_alone():
    with world_of("indexed-job.yaml", pods.pods_of_job, version=6) as world:
        started, running = start_without_names(world)
        for p in started:
            p.publish()
        check_facts(all_run(*running), "train-0.train")
        end_well(world, *running)


def ipv6_numbers():
    """In flags, messages and MASTER_ADDR."""
    with world_of("indexed-job.yaml", pods.pods_of_job, version=6) as world:
        world.write_program("train.py", TRAIN)
        both = world.recipe()
        both[0].extra = {"CRUN_MASTER_ADDR": "fd77::fd"}
        first = both[0].start()
        until(lambda: "fd77::fd is not an address of this machine, which has fd77::" in first.err,
              lambda: first.err)
        os.kill(both[0].main_pid(), signal.SIGINT)
        expect(first, 130)
        address = both[0].addresses[0]
        running = [p.start("crun", "--nnodes=2", "--rdzv-backend=c10d",
                           f"--rdzv-endpoint=[fd77::3]:29400", "train.py") for p in both]
        facts = all_run(*running)
        if not all(f["master"].startswith("fd77::") for f in facts.values()):
            fail("MASTER_ADDR:", facts)
        end_well(world, *running)


CASES = [
    the_manifests_are_sound,
    runtimes_bring_crun_along,
    late_names_of_an_indexed_job,
    late_names_of_a_jobset,
    late_names_of_a_trainjob,
    late_names_of_a_dynamic_rendezvous,
    a_name_that_never_means_this_node_is_told,
    lost_pods_come_back,
    the_address_of_a_service_leads_to_node_rank_0,
    the_address_of_a_service_by_intent,
    a_name_with_several_addresses,
    services_whose_names_look_like_settings,
    ipv6_alone,
    ipv6_numbers,
]


def timed(case):
    begun = time.monotonic()
    try:
        case()
    except BaseException as e:
        return f"FAILED {case.__name__}: {e!r}"
    print(f"ok {case.__name__} ({time.monotonic() - begun:.1f} s)", flush=True)
    return None


def main():
    host.need()
    chosen = [c for c in CASES if not sys.argv[1:] or c.__name__ in sys.argv[1:]]
    with concurrent.futures.ThreadPoolExecutor(len(chosen)) as pool:
        errors = [e for e in pool.map(timed, chosen) if e]
    if errors:
        sys.exit("\n".join(errors))


main()
