# SPDX-License-Identifier: MIT
"""A component of TorchX that starts a program by crun on each node:

    torchx run -s local_cwd torchx_crun.py:crun -j 1x4 -- train.py --epochs=3
    torchx run -s slurm torchx_crun.py:crun -j 4x8 --max_restarts=3 --flags="--warm=torch" -- train.py

It takes the place of dist.ddp; the image needs crun, as by pip install crun-launcher."""
import shlex

import torchx.specs as specs


def crun(*program: str, j: str = "1x2", image: str = "", max_restarts: int = 0, flags: str = "", port: int = 29500,
         name: str = "crun", h: str = "", cpu: int = 2, gpu: int = 0, memMB: int = 1024) -> specs.AppDef:
    """Starts a program on N nodes with M workers each.

    Args:
        program: the program and its arguments
        j: nodes and workers of each, NxM
        image: the image, or the folder of local_cwd
        max_restarts: how often the workers may start again
        flags: more flags of crun
        port: of the rendezvous, on the first node
        name: of the job
        h: a named resource, in place of cpu, gpu and memMB
        cpu: processors of a node
        gpu: GPUs of a node
        memMB: memory of a node, in MB
    """
    nodes, workers = (int(number) for number in j.split("x"))
    command = ["crun", f"--nnodes={nodes}", f"--nproc-per-node={workers}", f"--max-restarts={max_restarts}",
               f"--rdzv-id={specs.macros.app_id}"]
    # the shell of the node knows the first one's address
    where = [f'--node-rank={specs.macros.replica_id}', f'--master-addr="$${{{specs.macros.rank0_env}:=localhost}}"',
             f"--master-port={port}"] if nodes > 1 else []
    line = " ".join([shlex.join(command[:-1]), command[-1], *where, flags, shlex.join(program)])
    return specs.AppDef(name=name, roles=[specs.Role(
        name=name, image=image, num_replicas=nodes, entrypoint="bash", args=["-c", "exec " + line],
        port_map={"rendezvous": port}, resource=specs.resource(cpu=cpu, gpu=gpu, memMB=memMB, h=h or None))])
