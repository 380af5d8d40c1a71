"""Shared by all tests: a reproducible, quick hypothesis profile and a seed for torch."""

import pytest
import torch
from hypothesis import settings

settings.register_profile("torchcaps", deadline=None, derandomize=True, max_examples=20, print_blob=True)
settings.load_profile("torchcaps")


LONGEST = ("test_processes.py", "test_every_model.py", "test_page.py", "test_page_state.py", "test_reproduce.py",
           "test_tutorials.py", "test_explorer_fuzz.py", "test_explain.py", "test_matrix.py")  # fmt: skip


def pytest_collection_modifyitems(items):
    """The longest first: begun last, one of them would keep a process busy while the others have nothing left."""
    order = {name: at for at, name in enumerate(LONGEST)}
    items.sort(key=lambda item: order.get(item.path.name, len(LONGEST)))


@pytest.fixture(autouse=True)
def _seeded():
    torch.manual_seed(0)
    torch.set_num_threads(1)  # pytest runs one process per core
