"""What must hold for every model, on the day it is registered, and for every routing inside one."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from torchcaps import create_model, list_models, list_routings
from torchcaps.testing import MODEL_CHECKS, assert_model

SHAPE = (2, 19, 18)
IMAGES = torch.rand(3, *SHAPE, generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize("name", list_models())
@pytest.mark.parametrize("check", MODEL_CHECKS)
def test_model(name, check):
    MODEL_CHECKS[check](create_model(name, SHAPE, 3), IMAGES)


@pytest.mark.parametrize("name", list_models())
@settings(max_examples=4)
@given(
    shape=st.tuples(st.integers(1, 3), st.integers(1, 20), st.integers(1, 20)),
    batch=st.integers(1, 4),
    classes=st.integers(2, 5),
    seed=st.integers(0, 99),
)
def test_any_size_any_batch(name, shape, batch, classes, seed):
    torch.manual_seed(seed)
    model = create_model(name, shape, classes)
    images = torch.rand(batch, *shape)
    for check in ("batch", "zero", "state_dict"):
        MODEL_CHECKS[check](model, images)


def test_convolutional_capsules_with_a_routing_of_windows():
    model = create_model("matrix-capsnet", SHAPE, 3, channels=8, types=(4, 4, 4), routing="dynamic")
    assert_model(model, SHAPE)


@pytest.mark.parametrize("routing", list_routings())
def test_capsnet_small_with_every_routing(routing):
    assert_model(create_model("capsnet-small", SHAPE, 3, routing=routing), SHAPE)
