# SPDX-License-Identifier: MIT
"""
Pods of Kubernetes as far as a process in one can tell: namespaces for the network, the host name,
processes and mounts; process 1; files that the kubelet writes; names that a DNS server of the
cluster knows sooner or later. What the manifests say of them is read from the manifests, with what
the controllers add. Needs root.
"""
import itertools
import os
import re
import shutil
import subprocess
import tempfile

import yaml

from host import ip
from process import BIN, Process, children, fail, until

NAMESPACE = "default"
DOMAIN = f"{NAMESPACE}.svc.cluster.local"

# Run as process 1 of the pod's namespaces, until it becomes the container's command.
KUBELET = r'''
set -e
mount --make-rprivate /
mount -t proc proc /proc
for file in hosts resolv.conf hostname; do mount --bind "$POD/$file" /etc/$file; done
hostname "$(cat "$POD/hostname")"
mount --bind "$PROGRAMS" /mnt
mount --bind "$WORK" /srv
mount -t tmpfs -o mode=1777 tmpfs /media
mkdir /media/..data
if [ -f "$POD/key" ]; then cp "$POD/key" /media/..data/key; fi
chgrp -R "$GROUP" /media/..data
chmod 440 /media/..data/* 2>/dev/null || :
ln -s ..data/key /media/key
mount -t tmpfs -o mode=1777 tmpfs /tmp
mount -t tmpfs -o mode=1777,size=64m tmpfs /dev/shm
mount -o remount,bind,ro /
cd /srv
exec setpriv --reuid "$USER_ID" --regid "$GROUP" --clear-groups env -i "$@"
'''


class Pod:
    """A pod's place; start() may be called again after end(), as for its successor."""

    def __init__(self, world, spec, name, subdomain, index, labels=None, extra=()):
        self.world, self.spec, self.name, self.index = world, spec, name, index
        self.subdomain, self.labels = subdomain, labels or {}
        self.container = spec["containers"][0]
        self.extra = dict(extra)
        self.process = self.ns = None

    @property
    def full_name(self):
        return f"{self.name}.{self.subdomain}.{DOMAIN}"

    def environment(self):
        """As the kubelet makes it, in order: a value may name those before it."""
        env = {"PATH": "/mnt:/usr/local/bin:/usr/bin:/bin", "HOSTNAME": self.name, "HOME": "/",
               "JOB_COMPLETION_INDEX": str(self.index), "KUBERNETES_SERVICE_HOST": "10.96.0.1",
               "KUBERNETES_SERVICE_PORT": "443", "KUBERNETES_PORT": "tcp://10.96.0.1:443"}
        if self.spec.get("enableServiceLinks", True):
            env.update(self.world.service_links)
        for variable in self.container.get("env", []):
            env[variable["name"]] = re.sub(r"\$\((\w+)\)", lambda m: env.get(m[1], m[0]),
                                           self.value(variable))
        env.update(self.extra)
        return env

    def value(self, variable):
        if "value" in variable:
            return variable["value"]
        path = variable["valueFrom"]["fieldRef"]["fieldPath"]
        label = re.fullmatch(r"metadata\.labels\['(.*)'\]", path)
        return self.labels[label[1]] if label else fail("no field", path)

    def write_files(self, folder):
        search = f"search {DOMAIN} svc.cluster.local cluster.local"
        servers = "".join(f"nameserver {a}\n" for a in self.world.dns_addresses)
        texts = {
            "hosts": "# Kubernetes-managed hosts file.\n127.0.0.1\tlocalhost\n"
                     "::1\tlocalhost ip6-localhost ip6-loopback\nfe00::0\tip6-localnet\n"
                     + "".join(f"{a}\t{self.full_name}\t{self.name}\n" for a in self.addresses),
            "resolv.conf": f"{search}\n{servers}options ndots:5 timeout:1\n",
            "hostname": self.name + "\n",
        }
        for file, text in texts.items():
            with open(os.path.join(folder, file), "w") as f:
                f.write(text)

    def start(self, *command):
        """With the next free address. command: in place of the container's own."""
        self.ns, self.addresses = self.world.add_namespace()
        folder = tempfile.mkdtemp(dir=self.world.folder)
        self.write_files(folder)
        env = self.environment()
        if any(v.get("secret") for v in self.spec.get("volumes", [])):
            shutil.copy(self.world.key, os.path.join(folder, "key"))
            env["CRUN_KEY_FILE"] = env["CRUN_KEY_FILE"].replace("/etc/crun/", "/media/")
        user = self.spec.get("securityContext", {})
        setup = {"POD": folder, "PROGRAMS": str(BIN), "WORK": self.world.work,
                 "USER_ID": str(user.get("runAsUser", 0)), "GROUP": str(user.get("fsGroup", 0))}
        variables = [f"{k}={v}" for k, v in env.items()]
        words = list(command) or self.container["command"]
        self.process = Process(
            ["ip", "netns", "exec", self.ns, "unshare", "--uts", "--mount", "--pid", "--fork",
             "--kill-child", "sh", "-c", KUBELET, "sh", *variables, *words],
            where=f" in {self.name}", env={"PATH": os.environ["PATH"], **setup},
            start_new_session=True)
        self.process.command = words
        self.world.processes.append(self.process)
        return self.process

    def main_pid(self):
        """Process 1 of the pod, from outside."""
        return until(lambda: children(self.process.pid), "process 1")[0]

    def publish(self):
        self.world.set_name(self.full_name, self.addresses)


class World:
    """The cluster: a bridge, its DNS server, and a working folder that all pods see at /srv."""

    count = itertools.count()

    def __init__(self, version=4):
        self.version, self.number = version, next(self.count)
        self.processes, self.namespaces, self.names = [], [], {}
        self.service_links = {}

    def __enter__(self):
        self.folder = tempfile.mkdtemp(prefix="crun-pods-")
        self.work = os.path.join(self.folder, "work")
        os.mkdir(self.work)
        os.chmod(self.folder, 0o755)
        os.chmod(self.work, 0o777)
        self.key = os.path.join(self.folder, "key")
        subprocess.run([BIN / "crunctl", "keygen", self.key], check=True, capture_output=True)
        self.switch = f"crun{os.getpid()}w{self.number}"
        self.dns_addresses = self.own_addresses(254)
        self.names_file = os.path.join(self.folder, "names")
        self.write_names()
        ip("netns", "add", self.switch)
        self.namespaces.append(self.switch)
        ip("link", "set", "lo", "up", ns=self.switch)
        # its own, or it changes with the ports, and pods send to the one that they know
        ip("link", "add", "br0", "address", "02:00:00:00:00:fe", "type", "bridge", ns=self.switch)
        self.set_addresses(self.switch, "br0", self.dns_addresses)
        ip("link", "set", "br0", "up", ns=self.switch)
        server = os.path.join(os.path.dirname(__file__), "stub_dns.py")
        self.dns = self.run_in(self.switch, "python3", server, self.names_file, *self.dns_addresses)
        until(lambda: "ready" in self.dns.out, lambda: f"the DNS server: {self.dns.err}")
        return self

    def __exit__(self, *_):
        if self.dns.popen.poll() is not None:
            fail("the DNS server has ended:", self.dns.err)
        for p in self.processes:
            p.end()
        for ns in self.namespaces:
            subprocess.run(["ip", "netns", "del", ns], capture_output=True)
        shutil.rmtree(self.folder, ignore_errors=True)

    def own_addresses(self, number):
        return [f"10.77.0.{number}"] if self.version == 4 else [f"fd77::{number:x}"]

    @staticmethod
    def set_addresses(ns, interface, addresses):
        for address in addresses:
            wide = [address + "/64", "dev", interface, "nodad"] if ":" in address \
                else [address + "/24", "dev", interface]
            ip("addr", "add", *wide, ns=ns)

    def run_in(self, ns, *words):
        p = Process(["ip", "netns", "exec", ns, *words], start_new_session=True)
        self.processes.append(p)
        return p

    def add_namespace(self):
        number = len(self.namespaces)
        ns, interface = f"{self.switch}p{number}", f"e{os.getpid() % 100000}x{self.number}x{number}"
        ip("netns", "add", ns)
        self.namespaces.append(ns)
        peer = f"b{number}"
        ip("link", "add", interface, "netns", ns, "type", "veth", "peer", "name", peer,
           "netns", self.switch)
        ip("link", "set", peer, "master", "br0", "up", ns=self.switch)
        addresses = self.own_addresses(number)
        self.set_addresses(ns, interface, addresses)
        ip("link", "set", interface, "up", ns=ns)
        ip("link", "set", "lo", "up", ns=ns)
        return ns, addresses

    def set_name(self, name, addresses):
        """What DNS answers from now on; None: there is no such name."""
        self.names[name] = addresses or []
        self.write_names()

    def write_names(self):
        with open(self.names_file + ".new", "w") as f:
            f.writelines(f"{n} {a}\n" for n, all in self.names.items() for a in all)
        os.rename(self.names_file + ".new", self.names_file)

    def write_program(self, name, text):
        with open(os.path.join(self.work, name), "w") as f:
            f.write(text)


# -- what the controllers make of a manifest ------------------------------------------


def documents(path):
    with open(path) as f:
        return list(yaml.safe_load_all(f))


def kind(docs, wanted):
    return next(d for d in docs if d["kind"] == wanted)


def job_pods(world, job_spec, prefix, subdomain, **more):
    spec = job_spec["template"]["spec"]
    return [Pod(world, spec, f"{prefix}-{i}", subdomain, i, **more)
            for i in range(job_spec["completions"])]


def pods_of_job(world, docs):
    job = kind(docs, "Job")
    return job_pods(world, job["spec"], job["metadata"]["name"],
                    job["spec"]["template"]["spec"]["subdomain"])


def pods_of_jobset(world, docs):
    jobset = kind(docs, "JobSet")
    name, replicated = jobset["metadata"]["name"], jobset["spec"]["replicatedJobs"][0]
    labels = {"jobset.sigs.k8s.io/restart-attempt": "0"}
    return job_pods(world, replicated["template"]["spec"], f"{name}-{replicated['name']}-0",
                    jobset["spec"]["network"]["subdomain"], labels=labels)


def pods_of_trainjob(world, docs):
    """The trainer's torch plugin and JobSet's controller."""
    runtime, job = kind(docs, "ClusterTrainingRuntime"), kind(docs, "TrainJob")
    trainer, name = job["spec"]["trainer"], job["metadata"]["name"]
    replicated = runtime["spec"]["template"]["spec"]["replicatedJobs"][0]
    spec = replicated["template"]["spec"]["template"]["spec"]
    spec["containers"][0]["command"] = trainer["command"]
    workers = trainer["resourcesPerNode"]["limits"]["cpu"]
    return [Pod(world, spec, f"{name}-node-0-{i}", name, i,
                extra={"PET_NNODES": str(trainer["numNodes"]), "PET_NPROC_PER_NODE": workers,
                       "PET_NODE_RANK": str(i), "PET_MASTER_ADDR": f"{name}-node-0-0.{name}",
                       "PET_MASTER_PORT": "29500"})
            for i in range(trainer["numNodes"])]
