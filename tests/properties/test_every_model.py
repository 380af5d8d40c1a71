"""What must hold for every model, on the day it is registered, and for every routing inside one."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from torchcaps import create_model, list_models, list_routings
from torchcaps.testing import MODEL_CHECKS, TEXT_CHECKS, assert_model, random_texts

SHAPE = (2, 19, 18)
IMAGES = torch.rand(3, *SHAPE, generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize("name", list_models("images"))
@pytest.mark.parametrize("check", MODEL_CHECKS)
def test_model(name, check):
    MODEL_CHECKS[check](create_model(name, SHAPE, 3), IMAGES)


@pytest.mark.parametrize("name", list_models("words"))
@pytest.mark.parametrize("check", TEXT_CHECKS)
def test_text_model(name, check):
    torch.manual_seed(0)
    with torch._dynamo.config.patch(allow_rnn=True):  # otherwise it leaves torch's own LSTM out of the graph
        TEXT_CHECKS[check](create_model(name, (50, 8), 3), random_texts(50))


@pytest.mark.parametrize("name", list_models("words"))
@settings(max_examples=4)
@given(batch=st.integers(1, 4), length=st.integers(1, 20), classes=st.integers(2, 5), seed=st.integers(0, 99))
def test_texts_of_any_length(name, batch, length, classes, seed):
    torch.manual_seed(seed)
    model, token_ids = create_model(name, (30, 5), classes), random_texts(30, batch, length, seed)
    for check in ("batch", "zero", "state_dict"):
        TEXT_CHECKS[check](model, token_ids)


@pytest.mark.parametrize("routing", [name for name in list_routings() if name != "em"])
def test_text_capsules_with_every_routing(routing):
    torch.manual_seed(0)
    options = {"routing": routing} | ({} if routing == "dynamic" else {"leaky": False, "amend": False})
    sizes = {"filters": 6, "types": 3, "pose": 4, "ngram": 2}
    if routing == "frozen":  # which keeps a table for a fixed number of children, one for each of many positions
        sizes |= {"length": 23, "ngram": 14}
    assert_model(create_model("text-capsnet-a", (40, 6), 3, **sizes, **options), (40, 6))


@pytest.mark.parametrize("name", list_models("images"))
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
