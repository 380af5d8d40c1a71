"""Convolutional and class capsules: windows, poses, competition, masks, equivariance."""

import pytest
import torch

from torchcaps import Capsules, list_routings
from torchcaps.layers import CapsuleConv1d, CapsuleConv2d, CapsuleLinear, ClassCapsules, MatrixPrimaryCapsules2d
from torchcaps.routing import EMRouting, resolve_routing


def capsules(*arrangement, pose=(4, 4), dtype=torch.float64, seed=0):
    g = torch.Generator().manual_seed(seed)
    made = torch.randn(*arrangement, *pose, generator=g, dtype=dtype)
    return Capsules(made, torch.sigmoid(torch.randn(*arrangement, generator=g, dtype=dtype)))


DETERMINISTIC = [name for name in list_routings() if name not in ("random", "frozen")]


@pytest.mark.parametrize("pose", [(4, 4), (3, 3), (2, 5), 6])
@pytest.mark.parametrize("routing", DETERMINISTIC)
def test_equals_a_loop_over_windows(routing, pose):
    """Trap: patches scrambled. Every window alone, cut out by hand, through the routing on votes."""
    shape = (pose,) if isinstance(pose, int) else pose
    layer = CapsuleConv2d(3, 4, (3, 2), (2, 1), in_pose=pose, out_pose=pose if isinstance(pose, int) else (pose[0], 3),
                          routing=routing, compete="types").double().eval()  # fmt: skip
    children = capsules(2, 5, 4, 3, pose=shape)
    out = layer(children)
    assert out.pose.shape == (2, 2, 3, 4, *(shape if isinstance(pose, int) else (pose[0], 3)))
    weight = layer.effective_weight().unflatten(0, (3, 2))  # [kh, kw, T, J, d, C]
    for y in range(2):
        for x in range(3):
            votes, activation = [], []
            for i in range(3):
                for j in range(2):
                    for t in range(3):
                        m = children.pose[:, 2 * y + i, x + j, t].reshape(2, layer.rows, -1)  # [B, R, d]
                        votes.append(torch.einsum("brd,jdc->bjrc", m, weight[i, j, t]).flatten(2))
                        activation.append(children.activation[:, 2 * y + i, x + j, t])
            expected = layer.routing(torch.stack(votes, 1), torch.stack(activation, 1))
            torch.testing.assert_close(out.pose[:, y, x].flatten(2), expected.pose)
            torch.testing.assert_close(out.activation[:, y, x], expected.activation)


@pytest.mark.parametrize("routing", DETERMINISTIC)
def test_a_kernel_of_one_is_a_linear_layer_at_each_position(routing):
    conv = CapsuleConv2d(3, 4, 1, in_pose=5, out_pose=6, routing=routing).double().eval()
    linear = CapsuleLinear(3, 5, 4, 6, routing).double().eval()
    with torch.no_grad():
        linear.weight.copy_(conv.weight[0])
    children = capsules(2, 3, 2, 3, pose=(5,))
    out = conv(children)
    for y in range(3):
        for x in range(2):
            alone = linear(Capsules(children.pose[:, y, x], children.activation[:, y, x]))
            torch.testing.assert_close(out.pose[:, y, x], alone.pose)
            torch.testing.assert_close(out.activation[:, y, x], alone.activation)


@pytest.mark.parametrize("routing", DETERMINISTIC)
def test_a_translated_input_gives_translated_parents(routing):
    """Equivariance, also where children compete over positions: a figure in the middle of nothing moves by one."""
    layer = CapsuleConv2d(2, 3, 3, routing=routing).double().eval()
    pose, activation = torch.zeros(1, 15, 15, 2, 4, 4).double(), torch.zeros(1, 15, 15, 2).double()
    figure = capsules(1, 3, 3, 2)
    pose[:, 6:9, 6:9], activation[:, 6:9, 6:9] = figure.pose, figure.activation
    here = layer(Capsules(pose, activation))
    there = layer(Capsules(pose.roll((1, -1), (1, 2)), activation.roll((1, -1), (1, 2))))
    for before, after in zip(here[:2], there[:2], strict=True):
        torch.testing.assert_close(after[:, 4:10, 3:9], before[:, 3:9, 4:10])


def test_the_order_of_types_does_not_matter():
    layer = CapsuleConv2d(4, 3, 3).double()
    children = capsules(2, 5, 5, 4)
    order = torch.tensor([2, 0, 3, 1])
    other = CapsuleConv2d(4, 3, 3).double()
    with torch.no_grad():
        other.weight.copy_(layer.weight[:, order])
    moved = Capsules(children.pose[:, :, :, order], children.activation[:, :, :, order])
    torch.testing.assert_close(other(moved).pose, layer(children).pose)
    torch.testing.assert_close(other(moved).activation, layer(children).activation)


@pytest.mark.parametrize("layer", [CapsuleConv2d(2, 3, 3), ClassCapsules(2, 3)], ids=["conv", "class"])
def test_the_childs_activation_matters(layer):
    layer = layer.double()
    children = capsules(1, 5, 5, 2)
    before = layer(children)
    changed = children.activation.clone()
    changed[0, 2, 2, 0] *= 0.1
    after = layer(Capsules(children.pose, changed))
    assert (after.pose - before.pose).abs().max() > 1e-3
    assert (after.activation - before.activation).abs().max() > 1e-5


def test_competition_over_positions_differs_from_that_over_types():
    torch.manual_seed(0)
    everywhere = CapsuleConv2d(2, 3, 3).double()
    alone = CapsuleConv2d(2, 3, 3, compete="types").double()
    alone.load_state_dict(everywhere.state_dict())
    assert everywhere.compete == "positions"
    children = capsules(1, 5, 5, 2)
    assert (everywhere(children).pose - alone(children).pose).abs().max() > 1e-2
    shares = everywhere.route(children).coupling  # [B, P, W, T, J]
    centre = (everywhere.windows((5, 5)).table() == 12).nonzero()  # seen by all nine windows
    assert len(centre) == 9
    total = sum(shares[0, p, w].sum(dim=-1) for p, w in centre.tolist())
    torch.testing.assert_close(total, torch.ones(2).double())
    with pytest.raises(ValueError, match="known to EM routing only"):
        CapsuleConv2d(2, 3, 3, routing="dynamic", compete="positions").double()(children)


@pytest.mark.parametrize("routing", ["em", "dynamic", "optimized", "kmeans"])
def test_gradients(routing):
    layer = CapsuleConv2d(2, 2, 2, in_pose=(2, 2), routing=routing).double()
    children = capsules(1, 3, 3, 2, pose=(2, 2))
    names = [name for name, _ in layer.named_parameters()]

    def function(pose, activation, *parameters):
        state = dict(zip(names, parameters, strict=True))
        out = torch.func.functional_call(layer, state, (Capsules(pose, activation),))
        return out.pose, out.activation

    inputs = [*children[:2], *(p.detach() for p in layer.parameters())]
    assert torch.autograd.gradcheck(function, [t.clone().requires_grad_() for t in inputs], atol=1e-5, rtol=1e-3)


@pytest.mark.parametrize("iterations", [1, 2, 3, 4, 5])
def test_trace_has_the_cost_of_every_iteration(iterations):
    layer = CapsuleConv2d(3, 4, 3, routing={"name": "em", "iterations": iterations}).double()
    children = capsules(2, 6, 6, 3)
    out = layer.route(children, trace=True)
    assert out.trace.objective.shape == (iterations, 2)
    assert out.trace.coupling.shape == (iterations, 2, 16, 9, 3, 4)
    torch.testing.assert_close(out.trace.pose[-1], out.pose)
    torch.testing.assert_close(layer(children).pose.flatten(1, 2).flatten(-2), out.pose)
    if iterations > 1:  # the votes are described more and more cheaply
        assert (out.trace.objective[1:] < out.trace.objective[:-1]).all()
    plain = CapsuleConv2d(3, 4, 3, routing={"name": "dynamic", "iterations": iterations}).double()
    traced = plain.route(children, trace=True).trace
    assert traced.coupling.shape == (iterations, 2, 16, 9, 3, 4)
    assert traced.objective.shape == (iterations, 2)


@pytest.mark.parametrize("routing", ["em", "dynamic"])
def test_padding_adds_positions_without_children(routing):
    layer = CapsuleConv2d(2, 3, 3, 1, 1, routing=routing).double()
    children = capsules(1, 4, 5, 2)
    out = layer(children)
    assert out.pose.shape == (1, 4, 5, 3, 4, 4)
    inside = CapsuleConv2d(2, 3, 3, routing=routing, compete="types").double()
    inside.load_state_dict(layer.state_dict())
    padded = CapsuleConv2d(2, 3, 3, 1, 1, routing=routing, compete="types").double()
    padded.load_state_dict(layer.state_dict())
    torch.testing.assert_close(padded(children).pose[:, 1:-1, 1:-1], inside(children).pose)


@pytest.mark.parametrize("routing", ["em", "dynamic", "kmeans"])
def test_a_padded_sequence_gives_what_it_gives_alone(routing):
    layer = CapsuleConv1d(2, 3, 3, in_pose=4, routing=routing).double()
    children = capsules(2, 7, 2, pose=(4,))
    mask = (torch.arange(7)[None, :, None] < torch.tensor([5, 7])[:, None, None]).expand(2, 7, 2)
    junk = torch.where(mask[..., None], children.pose, torch.nan)
    out = layer(Capsules(junk, children.activation, mask))
    alone = layer(Capsules(children.pose[:1, :5], children.activation[:1, :5]))
    torch.testing.assert_close(out.pose[:1, :3], alone.pose)
    torch.testing.assert_close(out.activation[:1, :3], alone.activation)
    assert out.mask[:, :, 0].tolist() == [[True] * 3 + [False] * 2, [True] * 5]
    classes = ClassCapsules(3, 4, in_pose=4, routing=routing, coordinates=False).double()
    torch.testing.assert_close(classes(out).pose[:1], classes(alone).pose)
    with pytest.raises(ValueError, match="a mask and the layer's own padding"):
        CapsuleConv1d(2, 3, 3, padding=1, in_pose=4).double()(Capsules(children.pose, children.activation, mask))


def test_class_capsules_add_the_coordinates_of_the_child():
    layer = ClassCapsules(3, 2).double()
    children = capsules(1, 2, 4, 3)
    votes = torch.einsum("byxtrd,tjdc->byxtjrc", children.pose, layer.weight[0])
    for y in range(2):
        for x in range(4):
            votes[:, y, x, :, :, 0, 3] += (y + 0.5) / 2
            votes[:, y, x, :, :, 1, 3] += (x + 0.5) / 4
    expected = layer.routing(votes.flatten(-2).flatten(1, 3), children.activation.flatten(1))
    out = layer(children)
    torch.testing.assert_close(out.pose.flatten(2), expected.pose)
    torch.testing.assert_close(out.activation, expected.activation)
    assert layer.routing.inverse_temperature == "authors-class"
    assert layer(capsules(1, 7, 5, 3)).pose.shape == (1, 2, 4, 4)  # any size of the grid
    vectors = ClassCapsules(3, 2, in_pose=5, routing="dynamic").double()
    shift = vectors.shift((2, 4), vectors.weight)
    assert shift[5].tolist() == [[0, 0, 0, 0.75, 0.375]]


@pytest.mark.parametrize("routing", list_routings())
def test_any_routing_in_any_layer(routing):
    made = resolve_routing(routing)
    layer = CapsuleConv2d(2, 3, 3, 2, routing=made)
    children = capsules(2, 7, 7, 2, dtype=torch.float32)
    out = layer(children)
    assert out.pose.shape == (2, 3, 3, 3, 4, 4)
    if routing == "frozen":  # keeps a coupling per child: not for a layer that takes any number of children
        return
    classes = ClassCapsules(3, 5, routing=routing)
    final = classes(out)
    assert final.activation.shape == (2, 5)
    final.activation.sum().backward()
    assert layer.weight.grad.isfinite().all()


def test_primary_matrix_capsules_are_channels_of_one_type_at_one_position():
    layer = MatrixPrimaryCapsules2d(2, 3, (2, 4))
    features = torch.randn(1, 2, 4, 5)
    out = layer(features)
    assert out.pose.shape == (1, 4, 5, 3, 2, 4)
    maps = layer.conv(features)
    torch.testing.assert_close(out.pose[0, 1, 2, 1], maps[0, 8:16, 1, 2].view(2, 4))
    torch.testing.assert_close(out.activation[0, 1, 2], torch.sigmoid(maps[0, 24:, 1, 2]))
    with pytest.raises(ValueError, match=r"expects features of shape \[batch, 2, height, width\]"):
        layer(torch.zeros(1, 3, 4, 5))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: CapsuleConv2d(2, 3, 3, in_pose=(4, 4), out_pose=8), "two vectors .* or two matrices"),
        (lambda: CapsuleConv2d(2, 3, 3, in_pose=(4, 4), out_pose=(3, 4)), "as many rows"),
        (lambda: CapsuleConv2d(2, 3, (3, 3, 3)), "one number or 2"),
        (lambda: CapsuleConv2d(2, 3, 0), "kernel_size must be at least 1"),
        (lambda: CapsuleConv2d(0, 3, 3), "in_types must be at least 1"),
        (lambda: CapsuleConv2d(2, 3, 3, compete="all"), "unknown competition"),
        (lambda: ClassCapsules(2, 3, in_pose=(1, 4)), "coordinates need two numbers"),
        (lambda: CapsuleConv2d(2, 3, 3)(capsules(1, 2, 5, 2, dtype=torch.float32)), "too small"),
        (lambda: CapsuleConv2d(2, 3, 3)(capsules(1, 5, 2, dtype=torch.float32)), r"\[batch, height, width, 2, 4, 4\]"),
        (lambda: CapsuleConv2d(2, 3, 3)(capsules(1, 5, 5, 3, dtype=torch.float32)), "for 2 types; got pose"),
        (lambda: CapsuleConv2d(2, 3, 3)(torch.zeros(1, 5, 5, 2)), "takes Capsules"),
    ],
)
def test_errors_teach(make, message):
    with pytest.raises((ValueError, TypeError), match=message):
        make()


def sequence(*arrangement, lengths, pose=5, seed=0):
    """Capsules along sequences of different lengths, NaN where padding is."""
    given = capsules(*arrangement, pose=(pose,), seed=seed)
    mask = (torch.arange(arrangement[1]) < torch.tensor(lengths)[:, None])[..., None].expand(given.activation.shape)
    return Capsules(given.pose.masked_fill(~mask[..., None], float("nan")), given.activation, mask)


@pytest.mark.parametrize("routing", ["dynamic", "optimized", "kmeans", "uniform"])
def test_windows_that_hold_padding_are_left_out_without_a_trace(routing):
    """The same as each sequence alone, values, couplings and gradients; nothing comes from the padding."""
    layer = CapsuleConv1d(3, 4, 3, in_pose=5, routing=routing).double()
    together, lengths = sequence(3, 9, 3, lengths=(9, 5, 3)), (9, 5, 3)
    routed = layer.route(together, trace=True)
    out = layer(together)
    assert out.mask[..., 0].sum(dim=1).tolist() == [7, 3, 1]
    for row, length in enumerate(lengths):
        pose = together.pose[row : row + 1, :length].clone().requires_grad_()
        single = Capsules(pose, together.activation[row : row + 1, :length])
        alone, count = layer(single), length - 2
        torch.testing.assert_close(out.pose[row, :count], alone.pose[0])
        assert not out.pose[row, count:].any()
        torch.testing.assert_close(routed.coupling[row, :count], layer.route(single).coupling[0])
        torch.testing.assert_close(routed.trace.pose[:, row, :count], layer.route(single, trace=True).trace.pose[:, 0])
    layer.zero_grad()
    layer(together).pose.square().sum().backward()
    summed = layer.weight.grad.clone()
    layer.zero_grad()
    for row, length in enumerate(lengths):
        part = Capsules(together.pose[row : row + 1, :length], together.activation[row : row + 1, :length])
        layer(part).pose.square().sum().backward()
    torch.testing.assert_close(summed, layer.weight.grad)


def test_all_windows_may_be_padding():
    layer = CapsuleConv1d(3, 4, 3, in_pose=5, routing="dynamic").double()
    out = layer(sequence(2, 6, 3, lengths=(2, 1)))
    assert not out.mask.any()
    assert not out.pose.any()


@pytest.mark.parametrize("routing", ["dynamic", "kmeans"])
def test_weights_of_their_own_along_the_sequence(routing):
    """With the shared weights at every position it is the shared layer; with others it is not."""
    shared = CapsuleConv1d(3, 4, 3, 2, in_pose=5, out_pose=2, routing=routing).double()
    own = CapsuleConv1d(3, 4, 3, 2, in_pose=5, out_pose=2, routing=routing, positions=6).double()
    assert own.weight.shape == (6, *shared.weight.shape)
    with torch.no_grad():
        own.weight.copy_(shared.weight.expand_as(own.weight))
    children = sequence(2, 10, 3, lengths=(10, 6))
    for a, b in zip(own.route(children, trace=True), shared.route(children, trace=True), strict=True):
        torch.testing.assert_close(a, b)
    torch.testing.assert_close(own(children).pose, shared(children).pose)
    filled = Capsules(children.pose.nan_to_num(), children.activation)
    torch.testing.assert_close(own.votes(filled), shared.votes(filled))
    with torch.no_grad():
        own.weight[1].mul_(2)
    changed = (own(children).pose - shared(children).pose).abs().flatten(2).sum(dim=2) > 0
    assert changed.tolist() == [[False, True, False, False], [False, True, False, False]]
    with pytest.raises(ValueError, match="weights for 6 positions"):
        own(capsules(2, 16, 3, pose=(5,)))
    with pytest.raises(ValueError, match="compete='types'"):
        CapsuleConv1d(3, 4, 3, in_pose=5, routing="em", positions=6)


def test_votes_are_what_the_routing_sees():
    layer = CapsuleConv2d(3, 4, 2, in_pose=5, routing="dynamic").double()
    children = capsules(2, 3, 4, 3, pose=(5,))
    votes = layer.votes(children)  # [B, P, W, T, J, D]
    assert votes.shape == (2, 6, 4, 3, 4, 5)
    expected = layer.routing(votes.flatten(2, 3).flatten(0, 1)).pose
    torch.testing.assert_close(layer(children).pose.flatten(0, 2), expected)


def test_a_window_of_one_place_is_drawn_for_its_children():
    """Not as the layer of classes is, whose children are any number."""
    torch.manual_seed(0)
    layer = CapsuleConv2d(8, 16, 1, in_pose=8, routing="dynamic")
    expected = layer.routing.initial_std(8, 16, 8)
    assert float(layer.weight.detach().std()) == pytest.approx(expected, rel=0.05)


@pytest.mark.parametrize("routing", ["em", {"name": "em"}, EMRouting()], ids=["name", "mapping", "instance"])
def test_em_takes_a_quarter_of_lambda_for_classes_however_it_is_named(routing):
    assert ClassCapsules(2, 3, routing=routing).routing.inverse_temperature == "authors-class"
    assert CapsuleConv2d(2, 3, 1, routing="em").routing.inverse_temperature == "authors"


@pytest.mark.parametrize("make", [lambda **o: {"name": "em", **o}, EMRouting], ids=["mapping", "instance"])
def test_a_lambda_that_is_given_is_kept(make):
    for given in ("authors", 0.5):
        assert ClassCapsules(2, 3, routing=make(inverse_temperature=given)).routing.inverse_temperature == given


def test_tables_of_windows_are_made_once():
    """Not for every batch: on a device each would be a copy that the device waits for."""
    from torchcaps import create_model
    from torchcaps.ops import constants

    model, images = create_model("matrix-capsnet-small", (1, 25, 25), 3), torch.rand(2, 1, 25, 25)
    model(images).scores.sum().backward()
    before = constants._kept.cache_info().misses
    model(images).scores.sum().backward()
    with torch.no_grad():
        model(images)
    assert constants._kept.cache_info().misses == before
