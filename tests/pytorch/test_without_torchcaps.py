"""A program that was exported in plain torch and returns tensors runs where torchcaps is not installed."""

import subprocess
import sys

import pytest
import torch
from torch import nn

import torchcaps
from torchcaps.testing import random_texts

ELSEWHERE = """
import sys

sys.modules["torchcaps"] = None  # as if it were not installed
import torch

program = torch.export.load(sys.argv[1]).module()
inputs, expected = torch.load(sys.argv[2], weights_only=True)
torch.testing.assert_close(program(inputs), expected, rtol=1e-4, atol=1e-5)
"""


class Scores(nn.Module):
    """A saved program names the types that it returns: those of torchcaps would have to be imported to load it."""

    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, inputs):
        return self.model(inputs).scores


LONG = [pytest.param(name, marks=pytest.mark.long) for name in ("matrix-capsnet-small", "text-capsnet-a")]


@pytest.mark.parametrize("name", ["capsnet-small", *LONG])
def test_a_saved_program_needs_torch_only(name, tmp_path):
    torch.manual_seed(0)
    texts = name.startswith("text")
    model = torchcaps.create_model(name, (30, 6) if texts else (1, 17, 17), 3).eval()
    inputs, batch = random_texts(30) if texts else torch.rand(3, 1, 17, 17), torch.export.Dim("batch")
    with torchcaps.use_backend("plain"):
        program = torch.export.export(Scores(model), (inputs,), dynamic_shapes=({0: batch},))
    torch.export.save(program, tmp_path / "model.pt2")
    with torch.no_grad():
        torch.save((inputs[:2], model(inputs[:2]).scores), tmp_path / "values.pt")
    arguments = [sys.executable, "-c", ELSEWHERE, str(tmp_path / "model.pt2"), str(tmp_path / "values.pt")]
    subprocess.run(arguments, check=True, timeout=200, cwd=tmp_path)
