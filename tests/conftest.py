"""Shared by all tests: a reproducible, quick hypothesis profile and a seed for torch."""

import pytest
import torch
from hypothesis import settings

settings.register_profile("torchcaps", deadline=None, derandomize=True, max_examples=20, print_blob=True)
settings.load_profile("torchcaps")


@pytest.fixture(autouse=True)
def _seeded():
    torch.manual_seed(0)
    torch.set_num_threads(1)  # pytest runs one process per core
