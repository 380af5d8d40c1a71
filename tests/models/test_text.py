"""Text capsules and what they are compared with: sizes, windows, padding, stabilisers, first weights."""

import inspect

import pytest
import torch
import torch.nn.functional as F

from torchcaps import create_model
from torchcaps.models import TextCapsConfig, TextCapsNet, parameter_count, text_capsnet_a, text_capsnet_b
from torchcaps.models.text import ALIVE, TextCapsOptions, WordVectors
from torchcaps.ops import dynamic_routing, squash
from torchcaps.ops.plan import option_names

SMALL = {"filters": 6, "types": 3, "pose": 4}
FACTORIES = {"text-capsnet-a": text_capsnet_a, "text-capsnet-b": text_capsnet_b}


def small(name="text-capsnet-a", shape=(40, 5), classes=3, **options):
    torch.manual_seed(0)
    return create_model(name, shape, classes, **SMALL, **options).eval()


def test_the_parameters_are_those_of_the_papers_sizes():
    words, dim, filters, types, pose, classes = 1000, 100, 32, 16, 16, 6

    def branch(ngram):
        convolution = (ngram * dim + 1) * filters
        primary = (filters + 1) * types * pose
        return convolution + primary + 3 * types * types * pose * pose + types * (classes + 1) * pose * pose

    def count(name, **options):
        with torch.device("meta"):
            return parameter_count(create_model(name, (words, dim), classes, **options)) - words * dim

    assert count("text-capsnet-a") == branch(3)
    assert count("text-capsnet-a", ngram=2) == branch(2)
    assert count("text-capsnet-b") == branch(3) + branch(4) + branch(5)
    assert count("text-capsnet-b", ngrams=[2, 7]) == branch(2) + branch(7)
    assert count("text-cnn") == sum((n * dim + 1) * 100 for n in (3, 4, 5)) + 300 * 6 + 6
    assert count("text-bilstm") == 2 * (4 * 128 * (dim + 128 + 2)) + 256 * 6 + 6


def test_the_options_are_those_of_one_config():
    """By name, by function or by config: the same network; every way shows all options."""
    first = small(ngram=2, stride=2).state_dict()
    for make in (
        lambda: text_capsnet_a((40, 5), 3, ngram=2, stride=2, **SMALL),
        lambda: TextCapsNet((40, 5), 3, TextCapsConfig(ngrams=[2], stride=2, **SMALL)),
    ):
        torch.manual_seed(0)
        torch.testing.assert_close(make().state_dict(), first, rtol=0, atol=0)
    names = option_names(TextCapsConfig)
    shown = {name: list(inspect.signature(make).parameters)[2:] for name, make in FACTORIES.items()}
    assert shown == {"text-capsnet-a": ["ngram", *names[1:]], "text-capsnet-b": list(names)}
    assert tuple(TextCapsOptions.__annotations__) == names[1:], "what a type checker knows"
    config = create_model("text-capsnet-b", (40, 5), 3, device="meta").config
    assert config.options == {name: getattr(TextCapsConfig(), name) for name in names}


def test_a_misspelled_option_gets_the_nearest_name():
    for name, make in FACTORIES.items():
        with pytest.raises(ValueError, match="'filters'"):
            create_model(name, (40, 5), 3, filtres=8)
        with pytest.raises(TypeError, match="TextCapsConfig has no option 'filtres'. Did you mean 'filters'?"):
            make((40, 5), 3, filtres=8)


@pytest.mark.parametrize(("stride", "kind"), [(1, "sabour"), (2, "sabour"), (1, "exponential")])
def test_capsule_a_is_the_papers_four_layers_window_by_window(stride, kind):
    """Written out for one text in plain loops, from words to classes, with all stabilisers."""
    model = small(stride=stride, squash=kind).double()
    branch = model.branches[0]
    token_ids = torch.tensor([[5, 9, 2, 2, 31, 17, 8, 1]])
    vectors = model.words.table.weight[token_ids[0]]  # [L, V]
    ngrams = [
        torch.relu(torch.einsum("kv,bvk->b", vectors[at : at + 3], branch.ngrams.weight) + branch.ngrams.bias)
        for at in range(0, 8 - 2, stride)
    ]
    weight, bias = branch.primary.conv.weight[:, :, 0], branch.primary.conv.bias
    primary = [squash((weight @ ngram + bias).view(3, 4), kind) for ngram in ngrams]  # [T, d] each

    def routed(poses, matrices):
        votes = torch.stack([torch.einsum("d,jde->je", pose, m) for pose, m in zip(poses, matrices, strict=True)])
        lengths = torch.stack([pose.norm() for pose in poses])
        return dynamic_routing(votes[None], activation=lengths[None], leaky=True, amend=True, squash=kind).pose[0]

    windows = []
    for at in range(len(primary) - 2):
        children = [primary[at + place][t] for place in range(3) for t in range(3)]
        windows.append(routed(children, [branch.windows.weight[p, t] for p in range(3) for t in range(3)]))
    children = [window[t] for window in windows for t in range(3)]
    classes = routed(children, [branch.class_capsules.weight[0, t] for _ in windows for t in range(3)])
    output = model(token_ids)
    torch.testing.assert_close(output.capsules.pose[0], classes[:3])
    torch.testing.assert_close(output.scores[0], classes[:3].norm(dim=1))


def test_capsule_b_is_the_mean_of_its_branches():
    model = small("text-capsnet-b", ngrams=[2, 3, 4])
    token_ids = torch.randint(1, 40, (2, 9))
    branches = model.class_capsules(token_ids)
    assert [capsules.pose.shape for capsules in branches] == [(2, 4, 4)] * 3  # the noise class among them
    mean = sum(capsules.pose[:, :3] for capsules in branches) / 3
    torch.testing.assert_close(model(token_ids).capsules.pose, mean)
    torch.testing.assert_close(model(token_ids).scores, mean.norm(dim=2))


@pytest.mark.parametrize("stride", [1, 2])
@pytest.mark.parametrize("name", ["text-capsnet-a", "text-capsnet-b"])
def test_padding_never_counts(name, stride):
    """The same sentence alone, padded, or in a batch with longer ones, to 1e-6; also shorter than all windows."""
    torch.manual_seed(1)
    model = create_model(name, (60, 10), 4, stride=stride).eval()
    for length in (1, 2, 3, 6, 9, 25):
        text = torch.randint(1, 60, (1, length))
        batch = torch.zeros(5, 40, dtype=torch.int64)
        batch[2, :length] = text
        for row, other in ((0, 40), (1, 7), (3, 1), (4, 33)):
            batch[row, :other] = torch.randint(1, 60, (other,))
        alone = model(text).scores[0]
        for other in (model(F.pad(text, (0, 13))).scores[0], model(batch).scores[2]):
            assert float((alone - other).abs().max().detach()) < 1e-6


def test_gradients_do_not_come_from_padding():
    model = small()
    text = torch.tensor([[3, 4, 5, 6, 7, 8]])
    found = []
    for token_ids in (text, F.pad(text, (0, 9))):
        model.zero_grad()
        model(token_ids).scores.sum().backward()
        found.append({name: p.grad.clone() for name, p in model.named_parameters()})
        assert not model.words.table.weight.grad[0].any()
    torch.testing.assert_close(found[0], found[1])


def test_own_weights_along_the_text():
    """Not shared, a text that begins with a foreign word is another text; shared windows would only be shifted."""
    model = small(length=12)
    windows = model.branches[0].windows
    assert windows.weight.shape == (8, 3, 3, 3, 4, 4)
    assert model(torch.randint(1, 40, (2, 12))).scores.shape == (2, 3)
    with pytest.raises(ValueError, match="up to 12 words"):
        model(torch.randint(1, 40, (2, 13)))
    with pytest.raises(ValueError, match="length ≥ 5"):
        small(length=4)
    model(torch.randint(1, 40, (2, 5))).scores.sum().backward()
    assert windows.weight.grad[0].any()
    assert not windows.weight.grad[1:].any(), "five words are one window"


def test_the_noise_class_takes_part_in_the_routing_but_is_no_score():
    token_ids = torch.randint(1, 40, (2, 9))
    with_noise, without = small(noise_class=True), small(noise_class=False)
    assert with_noise.class_capsules(token_ids)[0].pose.shape[1] == 4
    assert without.class_capsules(token_ids)[0].pose.shape[1] == 3
    assert with_noise(token_ids).scores.shape == without(token_ids).scores.shape == (2, 3)
    with_noise(token_ids).scores.sum().backward()
    assert with_noise.branches[0].class_capsules.weight.grad[:, :, 3].any(), "it is learned through the competition"


@pytest.mark.parametrize("flag", ["leaky", "amend"])
def test_stabilisers_reach_both_layers(flag):
    model = small(**{flag: False})
    for layer in (model.branches[0].windows, model.branches[0].class_capsules):
        assert not getattr(layer.routing, flag)
        assert getattr(layer.routing, {"leaky": "amend", "amend": "leaky"}[flag])


def test_partial_sampling_leaves_out_convolutional_capsules_in_training_only():
    model = small(partial_sampling=0.67)
    assert model.branches[0].class_capsules.routing.partial_sampling is None
    token_ids = torch.randint(1, 40, (2, 9))
    assert torch.equal(model(token_ids).scores, model(token_ids).scores)
    capsules = model.branches[0].primary_capsules(*model.words(token_ids))
    model.train()
    silent = (model.branches[0].windows(capsules).activation == 0).all(dim=0).all(dim=0)
    assert silent.sum() == 1, "two of three types take part"


def test_whole_capsules_are_dropped_in_training_only():
    model = small(capsule_dropout=0.5)
    token_ids = torch.randint(1, 40, (2, 9))
    assert torch.equal(model(token_ids).scores, small()(token_ids).scores)
    seen = []
    model.branches[0].class_capsules.register_forward_pre_hook(lambda _, given: seen.append(given[0].pose))
    model.train()(token_ids)
    silent = (seen[0] == 0).all(dim=-1)
    assert 0 < int(silent.sum()) < silent.numel()
    assert not (seen[0] == 0).any(dim=-1)[~silent].any(), "a capsule is dropped as a whole or not at all"


@pytest.mark.parametrize("routing", ["optimized", "kmeans", {"name": "dynamic", "iterations": 1}])
def test_other_routings(routing):
    options = {} if isinstance(routing, dict) else {"leaky": False, "amend": False}
    assert small(routing=routing, **options)(torch.randint(1, 40, (2, 9))).scores.isfinite().all()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"routing": "optimized"}, "stabilisers of dynamic routing"),
        ({"routing": "kmeans", "leaky": False, "amend": False, "partial_sampling": 0.5}, "partial_sampling"),
        ({"ngram": 0}, "size of n-grams"),
        ({"routing": "em"}, "EM routing does not make"),
        ({"routing": {"iterations": 2}}, "needs a 'name'"),
        ({"window": 0}, "window"),
    ],
)
def test_options_that_cannot_be(options, message):
    with pytest.raises(ValueError, match=message):
        small(**options)
    for name in ("text-capsnet-b", "text-cnn"):
        for ngrams in ([], 3):
            with pytest.raises(ValueError, match="at least one size of n-grams"):
                create_model(name, (40, 5), 3, ngrams=ngrams)


@pytest.mark.parametrize(
    ("token_ids", "message"),
    [
        (torch.rand(2, 5), "int64 of shape"),
        (torch.ones(5, dtype=torch.int64), "int64 of shape"),
        (torch.ones(2, 0, dtype=torch.int64), "int64 of shape"),
        (torch.full((2, 5), 40), "in 0 … 39"),
        (torch.full((2, 5), -1), "in 0 … 39"),
    ],
)
def test_what_is_no_token_id(token_ids, message):
    for name in ("text-capsnet-a", "text-cnn", "text-lstm"):
        with pytest.raises(ValueError, match=message):
            create_model(name, (40, 5), 3)(token_ids)


def test_wrong_shapes_of_a_text_model():
    with pytest.raises(ValueError, match="size of a word's vector"):
        create_model("text-cnn", (1, 28, 28))
    with pytest.raises(ValueError, match="word vectors of shape"):
        small().load_vectors(torch.rand(40, 6))


@pytest.mark.parametrize("spread", [0.01, 0.25, 5.0])
@pytest.mark.parametrize("options", [{}, {"amend": False, "leaky": False, "noise_class": False}, {"pose": 8}])
def test_first_weights_bring_any_vectors_to_life(spread, options):
    torch.manual_seed(0)
    model = create_model("text-capsnet-b", (500, 30), 4, **{"types": 8, "filters": 16, **options})
    model.load_vectors(torch.randn(500, 30) * spread)
    for capsules in model.eval().class_capsules(torch.randint(2, 500, (32, 20))):
        assert ALIVE / 2 < float(capsules.activation.mean().detach()) < 2 * ALIVE


def test_static_vectors_are_not_learned():
    for name in ("text-capsnet-a", "text-cnn", "text-lstm", "text-bilstm"):
        model = create_model(name, (40, 5), 3, static=True)
        model(torch.randint(1, 40, (2, 9))).scores.sum().backward()
        assert model.words.table.weight.grad is None
        assert all(p.grad is not None for n, p in model.named_parameters() if n != "words.table.weight")


def test_word_vectors_continue_short_texts_with_zeros():
    words = WordVectors(10, 3, static=False, dropout=0.0)
    vectors, mask = words(torch.tensor([[4, 0, 0], [5, 6, 7]]), shortest=2)
    assert mask.tolist() == [[True, True, False], [True, True, True]]
    assert not vectors[0, :, 1:].any()
    assert torch.equal(vectors[1].T, words.table.weight[[5, 6, 7]])


def test_an_lstm_reads_each_text_to_its_own_end():
    torch.manual_seed(0)
    model = create_model("text-bilstm", (40, 5), 3, hidden=7).eval()
    text = torch.tensor([[3, 9, 4, 1]])
    vectors = model.words.table(text)
    _, (forward, _) = model.readers[0](vectors)
    _, (backward, _) = model.readers[1](vectors.flip(1))
    expected = model.classifier(torch.cat([forward[0], backward[0]], dim=1))
    torch.testing.assert_close(model(F.pad(text, (0, 4))).scores, expected)


def test_a_cnn_takes_the_maximum_over_its_text_only():
    model = create_model("text-cnn", (40, 5), 3, ngrams=[2], filters=3).eval()
    with torch.no_grad():
        model.ngrams[0].bias.fill_(1.0)  # n-grams of padding would give 1
        model.ngrams[0].weight.fill_(-1.0)
        model.words.table.weight[1:].fill_(1.0)  # n-grams of words give relu(1 − 10) = 0
    expected = model.classifier[1].bias
    torch.testing.assert_close(model(torch.tensor([[3, 4, 0, 0, 0]])).scores[0], expected)
