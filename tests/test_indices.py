"""Labels and token ids out of range are noticed eagerly, in compiled and exported graphs, and within vmap.

CUDA is asserted like a compiled graph on the CPU, other devices are read like the CPU; neither is on this machine, so
those two branches are tested with a tensor that only says it is elsewhere.
"""

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from torchcaps import CapsuleLoss, create_model, margin_loss, spread_loss
from torchcaps.indices import require_indices
from torchcaps.layers import ReconstructionDecoder
from torchcaps.targets import class_flags, object_masks

GOOD, HIGH, LOW = torch.tensor([0, 2, 1]), torch.tensor([0, 3, 1]), torch.tensor([0, -1, 1])
SENTENCE = r"labels must be in 0 … 2 for 3 classes"
LENGTHS = torch.rand(3, 3)
BACKENDS = ("aot_eager", "inductor")


@pytest.mark.parametrize("bad", [HIGH, LOW, HIGH.int(), HIGH.to(torch.uint8), HIGH[:, None]])
def test_eager(bad):
    with pytest.raises(ValueError, match=SENTENCE + ", got values from -?[01] to [1-3]"):
        object_masks(bad, 3)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("loss", [margin_loss, spread_loss, CapsuleLoss("cross-entropy")])
def test_compiled(loss, backend):
    torch._dynamo.reset()
    compiled = torch.compile(loss, fullgraph=True, backend=backend)
    found, wanted = compiled(LENGTHS, GOOD), loss(LENGTHS, GOOD)
    torch.testing.assert_close(found, wanted)
    for bad in (HIGH, LOW):
        with pytest.raises(RuntimeError, match=SENTENCE):
            compiled(LENGTHS, bad)


@pytest.mark.parametrize("strict", [False, True])
def test_exported(strict):
    class Flags(torch.nn.Module):
        def forward(self, target):
            return class_flags(target, 3)

    exported = torch.export.export(Flags(), (GOOD,), strict=strict)
    for module in (exported.module(), exported.run_decompositions().module()):
        assert torch.equal(module(GOOD), class_flags(GOOD, 3))
        with pytest.raises(RuntimeError, match=SENTENCE):
            module(HIGH)


def test_the_decoders_own_choice_is_not_asserted():
    model = create_model("capsnet-small", (1, 14, 14), 3).eval()
    exported = torch.export.export(model, (torch.rand(2, 1, 14, 14),))
    assert "_assert_async" not in str(exported.graph)
    decoder, capsules = ReconstructionDecoder(3, 16, (1, 2, 2), (4,)), model(torch.rand(2, 1, 14, 14)).capsules
    longest = capsules.activation.topk(2, dim=1).indices
    assert torch.equal(decoder(capsules), decoder(capsules, longest[:, 0]))
    assert torch.equal(decoder(capsules, objects=2), decoder(capsules, longest))


STACKED = torch.stack([GOOD, GOOD.flip(0)])


def stacked(bad):
    return torch.stack([GOOD, bad])


@pytest.mark.parametrize(
    "transform",
    [
        torch.vmap,
        lambda f: torch.vmap(torch.func.grad(f)),
        lambda f: torch.vmap(torch.func.grad_and_value(f)),
        lambda f: torch.vmap(torch.func.jacrev(f)),
    ],
)
@pytest.mark.parametrize("backend", [None, *BACKENDS])
def test_within_transforms(transform, backend):
    def loss(lengths, labels):
        return margin_loss(lengths, labels)

    torch._dynamo.reset()
    lengths, call = torch.rand(2, 3, 3), transform(loss)
    if backend is not None:
        call = torch.compile(call, fullgraph=True, backend=backend)
    found = call(lengths, STACKED)
    if isinstance(found, torch.Tensor) and found.dim() == 1:
        for image in range(2):
            torch.testing.assert_close(found[image], margin_loss(lengths[image], STACKED[image]))
    eager = (ValueError, SENTENCE + ", got values from")  # a compiled look-up asserts with torch's own words
    kind, message = eager if backend is None else ((IndexError, RuntimeError), "index out of")
    for bad in (HIGH, LOW):
        with pytest.raises(kind, match=message):
            call(lengths, stacked(bad))


def test_a_vmap_over_one_label_each_and_one_over_scores_only():
    one = torch.vmap(lambda lengths, label: margin_loss(lengths[None], label[None]))
    torch.testing.assert_close(one(LENGTHS, GOOD).mean(), margin_loss(LENGTHS, GOOD))
    same = torch.vmap(margin_loss, (0, None))
    assert same(torch.rand(2, 3, 3), GOOD).shape == (2,)
    for call, lengths in ((one, LENGTHS), (same, torch.rand(2, 3, 3))):
        with pytest.raises(ValueError, match=SENTENCE):
            call(lengths, HIGH)


def test_tensors_without_values_pass():
    meta = object_masks(torch.empty(4, dtype=torch.int64, device="meta"), 3)
    assert (meta.shape, meta.is_meta) == ((4, 1, 3), True)
    with FakeTensorMode() as mode:
        assert object_masks(mode.from_tensor(HIGH), 3).shape == (3, 1, 3)


@pytest.mark.parametrize("backend", [None, "aot_eager"])
def test_an_empty_batch(backend):
    masks = object_masks if backend is None else torch.compile(object_masks, fullgraph=True, backend=backend)
    assert masks(GOOD[:0], 3).shape == (0, 1, 3)
    assert masks(torch.zeros(0, 2, dtype=torch.int64), 3).shape == (0, 2, 3)


class Elsewhere(torch.Tensor):
    """Says that it is on another device."""

    place = "cuda"

    @property
    def device(self):
        return torch.device(self.place)


@pytest.mark.parametrize(
    ("place", "kind", "message"),
    [("cuda", RuntimeError, SENTENCE + r"\.$"), ("mps", ValueError, SENTENCE + ", got values from 0 to 3")],
)
def test_cuda_asserts_by_itself_and_other_devices_are_read(place, kind, message, monkeypatch):
    monkeypatch.setattr(Elsewhere, "place", place)
    sentence = "labels must be in 0 … 2 for 3 classes"
    require_indices(GOOD.as_subclass(Elsewhere), 3, sentence)
    with pytest.raises(kind, match=message):
        require_indices(HIGH.as_subclass(Elsewhere), 3, sentence)


WORDS = torch.tensor([[1, 2, 0], [3, 4, 5]])


@pytest.mark.parametrize("wrong", [6, -1])
def test_numbers_of_words(wrong):
    model = create_model("text-cnn", (6, 4), 2, ngrams=[2]).eval()
    bad = WORDS.clone()
    bad[1, 1] = wrong
    sentence = r"the token ids must be in 0 … 5, got values from -?\d to \d. Was the text encoded with another"
    with pytest.raises(ValueError, match=sentence):
        model(bad)
    each = torch.vmap(lambda numbers: model(numbers[None]).scores[0])
    torch.testing.assert_close(each(WORDS), model(WORDS).scores)
    with pytest.raises(ValueError, match=sentence):
        each(bad)
    torch._dynamo.reset()
    compiled = torch.compile(model, fullgraph=True, backend="aot_eager")
    torch.testing.assert_close(compiled(WORDS).scores, model(WORDS).scores)
    with pytest.raises(IndexError):
        compiled(bad)
    assert model(WORDS[:0]).scores.shape == (0, 2)
    assert create_model("text-cnn", (6, 4), 2, device="meta")(WORDS.to("meta")).scores.is_meta
