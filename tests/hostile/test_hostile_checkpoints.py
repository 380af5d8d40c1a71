"""Checkpoints that hold code, bombs, or another training."""

import io
import os
import pickle
import zipfile

import pytest
import torch
from watching import CANARY

from torchcaps.training.runs import CHECKPOINT


class Calls:
    """Unpickling it calls a function of the names given."""

    def __init__(self, function, *arguments):
        self.function, self.arguments = function, arguments

    def __reduce__(self):
        return self.function, self.arguments


def canary_call():
    """The pickle of a call into a module that must not be imported."""
    return f"c{CANARY}\nsing\n(tR.".encode()


def packed(parts, compress=zipfile.ZIP_STORED):
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w", compress) as archive:
        for name, part in parts.items():
            archive.writestr(f"archive/{name}", part)
    return content.getvalue()


def torch_like(structure, **more):
    return packed({"data.pkl": structure, "byteorder": b"little", "version": b"3\n", ".format_version": b"1", **more})


FILES = {
    "pickle alone": canary_call,
    "pickle of os.system": lambda: pickle.dumps(Calls(os.system, "touch pwned")),
    "canary": lambda: torch_like(canary_call()),
    "os.system": lambda: torch_like(pickle.dumps(Calls(os.system, "touch pwned"), 2)),
    "eval": lambda: torch_like(pickle.dumps(Calls(eval, f"__import__({CANARY!r})"), 2)),
    "stack global": lambda: torch_like(pickle.dumps(Calls(eval, "1"), 4)),
    "getattr": lambda: torch_like(b"cbuiltins\ngetattr\n(ctorch\nhub\nVload\ntR."),
    "bytearray of 10 GB": lambda: torch_like(b"cbuiltins\nbytearray\n(I10000000000\ntR."),
    "tensor of 400 GB": lambda: torch_like(b"ctorch\nTensor\n(I100000000000\ntR."),
    "set": lambda: torch_like(b"cbuiltins\nset\n(tR."),
    "persistent": lambda: torch_like(b"Psomething\n."),
    "endless memo": lambda: torch_like(b"]q\x00h\x00a."),
    "deep": lambda: torch_like(b"(" * 100_000 + b"t" * 100_000 + b"."),
    "cut short": lambda: torch_like(b"(((("),
    "no structure": lambda: packed({"other": b"x"}),
    "packed bomb": lambda: packed({"data.pkl": b"N.", "data/0": bytes(300_000_000)}, zipfile.ZIP_DEFLATED),
    "packed": lambda: packed({"data.pkl": b"N."}, zipfile.ZIP_DEFLATED),
    "large structure": lambda: torch_like(b"N0" * 4_000_000 + b"N."),
    "nothing": lambda: torch_like(b"N."),
    "a list": lambda: torch_like(b"(l."),
    "an empty map": lambda: torch_like(b"}."),
    "legacy": lambda: pickle.dumps(119547037146038801333356, 2) + pickle.dumps(1001, 2) + canary_call(),
    "tar": lambda: b"ustar" * 200,
}


@pytest.mark.parametrize("name", FILES)
def test_files_that_are_no_checkpoint(name, run, refused):
    (run / CHECKPOINT).write_bytes(FILES[name]())
    assert "checkpoint" in refused("train", "--resume", run)


def drop(key):
    return lambda found: found.pop(key)


def replace(key, value):
    return lambda found: found.update({key: value})


def reshape(found):
    state = found["optimizer_states"][0]["state"]
    state[0]["exp_avg"] = torch.zeros(3)


def expand(found):
    state = found["optimizer_states"][0]["state"]
    state[0]["exp_avg"] = torch.zeros(1).expand(10**12)


def rename(found):
    found["state_dict"]["other"] = found["state_dict"].pop(next(iter(found["state_dict"])))


def number(found):
    found["state_dict"][next(iter(found["state_dict"]))] = 5


CHANGES = {
    "no weights": drop("state_dict"),
    "no optimiser": drop("optimizer_states"),
    "no loops": drop("loops"),
    "no epoch": drop("epoch"),
    "no version": drop("pytorch-lightning_version"),
    "weights of a list": replace("state_dict", [1, 2]),
    "weights of nothing": replace("state_dict", {}),
    "optimiser of a list": replace("optimizer_states", []),
    "optimiser of a text": replace("optimizer_states", ["x"]),
    "loops of a number": replace("loops", 5),
    "callbacks of a number": replace("callbacks", 5),
    "callbacks with other states": replace("callbacks", {"EpochLog": {"rows": 5}}),
    "schedules of a number": replace("lr_schedulers", 5),
    "another shape": reshape,
    "a thousand gigabytes": expand,
    "another name": rename,
    "a number for a tensor": number,
}


@pytest.mark.parametrize("name", CHANGES)
def test_checkpoints_of_something_else(name, run, harmless):
    """A checkpoint may lack what is not needed, but what is there is not believed."""
    found = torch.load(run / CHECKPOINT, weights_only=True)
    CHANGES[name](found)
    torch.save(found, run / CHECKPOINT)
    harmless("train", "--resume", run)
