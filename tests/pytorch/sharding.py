"""FSDP2: parameters in shards, two processes on the CPU that exchange them by gloo.

The two processes are started once for all subjects, with this file as their program.
"""

import fcntl
import json
import os
import subprocess
import sys
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist
from comparing import TOLERANCE, Function, WrongValueError, gradient, loss, plain, require_close
from subjects import SUBJECTS, OnTensors
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

from torchcaps.layers import CapsuleConv1d, CapsuleConv2d, CapsuleLinear, ClassCapsules, PrimaryCapsules2d

PROCESSES = 2
SHARDED_ALONE = (CapsuleConv1d, CapsuleConv2d, CapsuleLinear, ClassCapsules, PrimaryCapsules2d)
"""Layers whose parameters are gathered when they run, not with the whole model's."""


def require_sharded(name, results):
    """Raise what went wrong with a subject."""
    kind, message = results[name]
    if kind == WrongValueError.__name__:
        raise WrongValueError(message)
    if kind is not None:
        raise RuntimeError(f"{kind}: {message}")


def shard_all(names, folder):
    """What became of each subject, by name: the kind of error and its message. Of several callers one does the work."""
    results = Path(folder) / "sharded.json"
    with (Path(folder) / "sharded.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not results.exists():
            _run_processes(names, results)
    return json.loads(results.read_text())


def _run_processes(names, results):
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    command = [sys.executable, __file__, str(results.with_suffix(".store")), str(results)]
    running = [
        subprocess.Popen([*command, str(rank), *names], env=environment, stderr=subprocess.PIPE, text=True)
        for rank in range(PROCESSES)
    ]
    endings = [(process.communicate(timeout=600)[1], process.returncode) for process in running]
    failed = [text for text, code in endings if code != 0]
    if failed:
        raise RuntimeError(f"the processes of FSDP2 failed: {failed[0][-2000:]}")


def _one_step(subject, rank, mesh):
    """Every process has a batch of its own; the gradient is the mean of both."""
    module = OnTensors(subject, subject.module())
    for part in module.modules():
        if isinstance(part, SHARDED_ALONE) and part is not module.module:
            fully_shard(part, mesh=mesh)
    fully_shard(module, mesh=mesh)
    outputs = module(*subject.inputs(seed=rank))
    loss(outputs).backward()
    found = {
        name: torch.zeros(p.shape) if p.grad is None else p.grad.full_tensor()
        for name, p in module.named_parameters()
        if p.requires_grad
    }
    functions = [Function(subject, inputs=subject.inputs(dtype=torch.float64, seed=seed)) for seed in range(PROCESSES)]
    with plain():
        expected = [gradient(function) for function in functions]
        require_close(outputs, functions[rank](functions[rank].point), TOLERANCE[torch.float32], "outputs")
    mean = {name: sum(one[name] for one in expected) / PROCESSES for name in found}
    require_close(found, mean, TOLERANCE[torch.float32], "gradients")


def _main(store, results, rank, *names):
    torch.set_num_threads(1)
    dist.init_process_group(
        "gloo", init_method=f"file://{store}", rank=int(rank), world_size=PROCESSES, timeout=timedelta(seconds=60)
    )
    mesh, found = init_device_mesh("cpu", (PROCESSES,)), {}
    for name in names:
        try:
            _one_step(SUBJECTS[name], int(rank), mesh)
            found[name] = (None, "")
        except Exception as error:  # each is a cell of the table
            found[name] = (type(error).__name__, str(error))
    if rank == "0":
        Path(results).write_text(json.dumps(found))
    dist.destroy_process_group()


if __name__ == "__main__":
    _main(*sys.argv[1:])
