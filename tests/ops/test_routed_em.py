"""EM routing on grids: kernel and torch against a loop over windows written out on float64, values and gradients."""

import itertools
import math

import pytest
import torch
from paths import HAS_KERNEL, REASON, VARIANTS, on_path

from torchcaps.ops import Windows, em_routing, routed_em
from torchcaps.ops.backends import use_backend
from torchcaps.ops.em import em_routing_reference, op
from torchcaps.ops.em import torch as moments
from torchcaps.ops.em.backend import Children, GridPlan, Parents
from torchcaps.ops.em.cpu import KernelMoments

LAMBDAS = [0.02, 0.05, 0.1, 0.2, 0.4]
needs_kernel = pytest.mark.skipif(not HAS_KERNEL, reason=f"no kernel: {REASON}")


@pytest.fixture(params=[pytest.param("kernel", marks=needs_kernel), "torch"])
def path(request, monkeypatch):
    """Both paths in turn; torch with votes of one image at a time."""
    monkeypatch.setattr(moments, "CHUNK_BYTES", 1)
    with use_backend("torch" if request.param == "torch" else "cpu"):
        yield request.param


def grid_em(
    poses, weight, activation, beta_u, beta_a, windows, iterations, *, shift=None, compete="positions", floor=1e-4
):
    """Procedure 1 of Hinton et al. 2018, over explicit lists of windows, in plain probabilities."""
    table = windows.table().tolist()
    batch, types, parents = len(poses), poses.shape[2], weight.shape[2]
    poses_out, activations = [], []
    for b in range(batch):
        votes = {}  # (window, place, type) -> [J, H]
        for p, window in enumerate(table):
            for w, q in enumerate(window):
                for t in range(types if q >= 0 else 0):
                    matrix = weight[0 if windows.shared else w, t]  # [J, d, C]
                    vote = poses[b, q, t] @ matrix
                    votes[p, w, t] = (vote if shift is None else vote + shift[q]).flatten(1)
        rivals = {}  # which links a child's shares are spread over
        for p, w, t in votes:
            rivals.setdefault((table[p][w], t) if compete == "positions" else (p, w, t), []).append((p, w, t))
        r = {
            link: votes[link].new_full((parents,), 1 / (parents * len(own))) for own in rivals.values() for link in own
        }
        even = [sum(float(r[link][0]) for link in votes if link[0] == p) for p in range(len(table))]
        for step in range(iterations):
            mean, variance, a = [], [], []
            for p in range(len(table)):
                own = [link for link in votes if link[0] == p]
                weights = torch.stack([r[link] * activation[b, table[p][link[1]], link[2]] for link in own])  # [N, J]
                amount = weights.sum(0)
                v = torch.stack([votes[link] for link in own])  # [N, J, H]
                mu = (weights[..., None] * v).sum(0) / amount[:, None]
                var = (weights[..., None] * (v - mu) ** 2).sum(0) / amount[:, None]
                var = var.clamp_min(floor)
                cost = ((beta_u[:, None] + var.sqrt().log()) * amount[:, None]).sum(1) * 100 / even[p]
                mean.append(mu), variance.append(var), a.append(torch.sigmoid(LAMBDAS[step] * (beta_a - cost)))
            if step + 1 < iterations:
                for own in rivals.values():
                    p_of = {}
                    for link in own:
                        away = (votes[link] - mean[link[0]]) ** 2 / (2 * variance[link[0]])
                        density = torch.exp(-away) / (2 * math.pi * variance[link[0]]).sqrt()
                        p_of[link] = a[link[0]] * density.prod(dim=1)
                    total = sum(value.sum() for value in p_of.values())
                    for link in own:
                        r[link] = p_of[link] / total
        poses_out.append(torch.stack(mean)), activations.append(torch.stack(a))
    return torch.stack(poses_out), torch.stack(activations)


GRIDS = {
    "conv": (Windows((4, 5), (3, 3), (1, 2), (0, 0)), (4, 4, 4)),
    "padded": (Windows((3, 3), (2, 2), (2, 2), (1, 1)), (3, 2, 3)),
    "sequence": (Windows((6,), (3,), (1,), (0,)), (1, 5, 3)),
    "class": (Windows.whole((2, 3)), (2, 2, 2)),
    "one child": (Windows((2, 2), (1, 1), (1, 1), (0, 0)), (4, 4, 4)),
}


def grid_case(name, types=2, parents=3, batch=2, dtype=torch.float64, seed=0):
    windows, (rows, inner, columns) = GRIDS[name]
    g = torch.Generator().manual_seed(seed)
    positions, places = math.prod(windows.size), 1 if windows.shared else math.prod(windows.kernel)
    if name == "one child":
        types = 1

    def draw(*shape):
        return torch.randn(*shape, generator=g, dtype=torch.float64)

    inputs = [
        draw(batch, positions, types, rows, inner),
        0.7 * draw(places, types, parents, inner, columns),
        torch.sigmoid(draw(batch, positions, types)),
        0.3 * draw(parents),
        0.3 * draw(parents),
    ]
    shift = draw(positions, rows, columns).to(dtype) if windows.shared else None
    return [tensor.to(dtype).requires_grad_() for tensor in inputs], windows, shift


def gradients(outputs, inputs):
    g = torch.Generator().manual_seed(1)
    seeds = [torch.randn(o.shape, generator=g, dtype=torch.float64).to(o.dtype) for o in outputs]
    return torch.autograd.grad(outputs, inputs, seeds)


def assert_near(actual, expected, tolerance):
    # Of the largest number, but not of less than 0.1: poses and the gradients that come in are of the order of one, so
    # a gradient that should vanish, such as that of an only child's activation, is a difference of such numbers.
    scale = expected.abs().max().clamp_min(0.1)
    torch.testing.assert_close(actual.double() / scale, expected.double() / scale, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("compete", ["positions", "types"])
@pytest.mark.parametrize("iterations", [1, 2, 3])
@pytest.mark.parametrize("name", GRIDS)
def test_equals_a_loop_over_windows(path, name, iterations, compete):
    # Each iteration magnifies rounding: with the E-step of em_routing on stored float32 votes it is as much.
    single = 1e-5 if iterations < 3 else 1e-4
    for dtype, tolerance in ((torch.float64, 1e-9), (torch.float32, single)):
        given, windows, shift = grid_case(name, dtype=dtype)
        exact = [tensor.detach().double().requires_grad_() for tensor in given]  # the same numbers, also if rounded
        expected = grid_em(
            *exact, windows, iterations, shift=None if shift is None else shift.double(), compete=compete
        )
        out = routed_em(*given, windows, iterations, inverse_temperature=LAMBDAS, shift=shift, compete=compete)
        for actual, right in zip((out.pose, out.activation), expected, strict=True):
            assert_near(actual, right, tolerance)
        pairs = zip(gradients((out.pose, out.activation), given), gradients(expected, exact), strict=True)
        for actual, right in pairs:
            assert_near(actual, right, tolerance)


@pytest.mark.parametrize("iterations", [4, 5])
def test_more_iterations_in_float64(path, iterations):
    inputs, windows, _ = grid_case("conv", seed=3)
    expected = grid_em(*inputs, windows, iterations)
    out = routed_em(*inputs, windows, iterations, inverse_temperature=LAMBDAS)
    for actual, right in zip((out.pose, out.activation), expected, strict=True):
        assert_near(actual, right, 1e-9)
    pairs = zip(gradients((out.pose, out.activation), inputs), gradients(expected, inputs), strict=True)
    for actual, right in pairs:
        assert_near(actual, right, 1e-9)


@pytest.mark.parametrize("first", [True, False])
@pytest.mark.parametrize("name", ["conv", "sequence", "class"])
def test_a_pass_in_float32_is_exact_to_1e_5(path, name, first):
    """Values and all gradients of one iteration against float64, on the sizes of a real layer."""
    inputs, windows, shift = grid_case(name, types=8, parents=16)
    g = torch.Generator().manual_seed(2)
    exact = [tensor.detach().float().double() for tensor in inputs[:3]]
    even = moments.moments(Children(*exact, shift), None, windows, None, True)
    parents = [
        0.5 * torch.randn(even.amount.shape, generator=g),
        even.mean.float(),
        (1 / (0.1 + even.variance)).float(),
    ]
    exact += [] if first else [tensor.double() for tensor in parents]
    results = []
    for dtype in (torch.float64, torch.float32):
        given = [tensor.to(dtype).requires_grad_() for tensor in exact]
        children = Children(*given[:3], None if shift is None else shift.to(dtype))
        out = op.em_moments(children, None if first else Parents(*given[3:]), windows, None, True)
        results.append((*out[:3], *gradients(out[:3], given)))
    for right, single in zip(*results, strict=True):
        assert_near(single, right, 1e-5)


@needs_kernel
@pytest.mark.parametrize("parents", [1, 5, 8, 17])
@pytest.mark.parametrize("types", [1, 3, 4, 9])
def test_kernel_equals_torch_on_odd_sizes(types, parents):
    """With absent children, absent parents, shared weights and every instruction set; gradients too."""
    for name, everywhere, masked in itertools.product(("conv", "class"), (True, False), (True, False)):
        inputs, windows, shift = grid_case(name, types, parents, batch=3)
        g = torch.Generator().manual_seed(parents)
        poses, weight, activation = (tensor.detach() for tensor in inputs[:3])
        activation = activation * (torch.rand(activation.shape, generator=g) < 0.7)
        children = Children(poses, weight, activation, shift)
        positions = len(windows.table())
        present = torch.rand(3, positions, generator=g) < 0.6 if masked else None
        even = moments.moments(children, None, windows, present, everywhere)
        parents_ = Parents(torch.randn(even.amount.shape, generator=g).double(), even.mean, 1 / (even.variance + 0.1))
        seeds = tuple(torch.randn(part.shape, generator=g).double() for part in even[:3])
        for given in (None, parents_):
            slow = moments.moments(children, given, windows, present, everywhere)
            wanted = moments.moment_gradients(children, given, windows, present, everywhere, slow, seeds)
            plan, kernel = GridPlan(windows, everywhere), KernelMoments()
            for variant in VARIANTS:
                with on_path(variant):
                    fast = kernel.moments(plan, children, given, present)
                    found = kernel.moment_gradients(plan, children, given, present, slow, seeds)
                for actual, right in zip((*fast, *found), (*slow, *wanted), strict=True):
                    torch.testing.assert_close(actual, right, rtol=1e-9, atol=1e-9)


@needs_kernel
def test_gradients_are_the_same_from_run_to_run():
    """Bit by bit, with several threads: a resumed training depends on it."""
    threads = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        given, windows, _ = grid_case("conv", types=8, parents=16, batch=33, dtype=torch.float32)
        found = []
        for _ in range(5):
            out = routed_em(*given, windows)
            found.append(gradients((out.pose, out.activation), given))
    finally:
        torch.set_num_threads(threads)
    for other in found[1:]:
        assert all(torch.equal(a, b) for a, b in zip(found[0], other, strict=True))


@pytest.mark.parametrize("iterations", [1, 3])
def test_one_position_is_em_routing_on_votes(path, iterations):
    g = torch.Generator().manual_seed(0)
    poses, weight, activation = (
        torch.rand(shape, generator=g, dtype=torch.float64) for shape in ((2, 7, 4), (7, 3, 4, 5), (2, 7))
    )
    votes = torch.einsum("bid,ijdk->bijk", poses, weight)
    expected = em_routing(votes, activation, 0.1, 0.2, iterations, trace=True)
    windows = Windows((1,), (1,), (1,), (0,))
    out = routed_em(
        poses[:, None, :, None], weight[None], activation[:, None], 0.1, 0.2, windows, iterations, trace=True
    )
    torch.testing.assert_close(out.pose[:, 0], expected.pose)
    torch.testing.assert_close(out.activation[:, 0], expected.activation)
    torch.testing.assert_close(out.trace.coupling[:, :, 0, 0], expected.trace.coupling)
    torch.testing.assert_close(out.trace.objective, expected.trace.objective)
    lambdas = [0.01 * (1 - 0.95 ** (t + 1)) for t in range(iterations)]
    betas = (torch.full((3,), 0.1).double(), torch.full((3,), 0.2).double())
    reference = em_routing_reference(votes, activation, *betas, lambdas)
    torch.testing.assert_close(out.pose[:, 0], reference[0])


def test_a_parent_that_gets_next_to_nothing_is_exact(path):
    """Shares of e^-400 underflow in float32; mean and variance are ratios and must not."""
    inputs, windows, _ = grid_case("conv")
    poses, weight, activation, *_ = (tensor.detach() for tensor in inputs)
    even = moments.moments(Children(poses, weight, activation, None), None, windows, None, True)
    log_p = torch.zeros_like(even.amount)
    log_p[:, :, 0] = -400
    results = []
    for dtype in (torch.float64, torch.float32):
        children = Children(poses.to(dtype), weight.to(dtype), activation.to(dtype), None)
        parents = Parents(log_p.to(dtype), even.mean.to(dtype), (1 / (even.variance + 0.5)).to(dtype))
        results.append(op.em_moments(children, parents, windows, None, True))
    exact, single = results
    assert float(exact.amount[:, :, 0].max()) < 1e-150
    for name in ("mean", "variance"):
        right = getattr(exact, name)
        torch.testing.assert_close(
            getattr(single, name).double(), right, rtol=2e-4, atol=1e-4 * float(right.abs().max())
        )


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_children_that_are_not_there(path, dtype):
    """No activation at all, a mask over everything, zero poses: finite values, finite gradients."""
    given, windows, _ = grid_case("conv", dtype=dtype)
    poses, weight, activation, beta_u, beta_a = given
    nobody = torch.zeros_like(activation, requires_grad=True)
    for a, mask in ((nobody, None), (activation, torch.zeros(activation.shape, dtype=torch.bool))):
        for p in (poses, torch.zeros_like(poses, requires_grad=True)):
            out = routed_em(p, weight, a, beta_u, beta_a, windows, mask=mask)
            found = torch.autograd.grad((out.pose.sum() + out.activation.sum()), [p, weight, a], allow_unused=True)
            for tensor in (out.pose, out.activation, *found):
                assert tensor.isfinite().all()


def test_masked_children_and_parents_have_no_influence(path):
    """A padded sequence gives what the sequence alone gives, whatever stands in the padding; so do gradients."""
    given, _, _ = grid_case("sequence")
    poses, weight, activation, beta_u, beta_a = given
    short = Windows((4,), (3,), (1,), (0,))
    alone = routed_em(poses[:, :4], weight, activation[:, :4], beta_u, beta_a, short)
    mask = torch.zeros(activation.shape, dtype=torch.bool)
    mask[:, :4] = True
    junk = poses.detach().clone()
    junk[:, 4:] = math.nan
    junk.requires_grad_()
    padded = routed_em(junk, weight, activation, beta_u, beta_a, Windows((6,), (3,), (1,), (0,)), mask=mask)
    torch.testing.assert_close(padded.pose[:, :2], alone.pose)
    torch.testing.assert_close(padded.activation[:, :2], alone.activation)
    (wanted,) = torch.autograd.grad(alone.pose.square().sum(), poses)
    (found,) = torch.autograd.grad(padded.pose[:, :2].square().sum(), junk)
    torch.testing.assert_close(found[:, :4], wanted[:, :4])
    assert (found[:, 4:] == 0).all()


def test_shares_of_a_child_sum_to_one_over_all_parents_that_see_it():
    given, windows, _ = grid_case("conv")
    for compete in ("positions", "types"):
        out = routed_em(*given, windows, compete=compete, coupling=True)  # [B, P, W, T, J]
        total = out.coupling.sum(dim=-1)
        if compete == "positions":
            child = windows.table().flatten()
            total = total.new_zeros(2, 20, 2).index_add(1, child, total.flatten(1, 2))[:, child.unique()]
        torch.testing.assert_close(total, torch.ones_like(total))


def test_mass_of_even_shares_is_the_same_everywhere():
    """At the border children have fewer parents; equal children must not look like more evidence there."""
    windows = Windows((5, 5), (3, 3), (1, 1), (0, 0))
    poses, activation = torch.zeros(1, 25, 2, 1, 1), torch.full((1, 25, 2), 0.8)
    weight = torch.zeros(9, 2, 3, 1, 1)
    out = routed_em(poses, weight, activation, 0.5, 0.0, windows, 1, inverse_temperature=0.01)
    assert float(out.activation.std()) < 1e-6
    cost = (0.5 + 0.5 * math.log(1e-4)) * 0.8 * 100
    torch.testing.assert_close(out.activation[0, 0, 0], torch.sigmoid(torch.tensor(-0.01 * cost)))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"poses": torch.zeros(2, 5, 2, 4, 4)}, "20 positions"),
        ({"weight": torch.zeros(9, 3, 3, 4, 4)}, "types or sizes differ"),
        ({"activation": torch.zeros(2, 20, 3)}, "activation must have shape"),
        ({"activation": torch.zeros(2, 20, 2)}, "must be torch.float64"),
        ({"beta_u": torch.zeros(7)}, "beta_u must have shape"),
        ({"compete": "windows"}, "unknown competition"),
        ({"mass": 0.0}, "mass must be positive"),
        ({"iterations": 0}, "iterations must be at least 1"),
        ({"mask": torch.ones(2, 20, dtype=torch.bool)}, "mask must have shape"),
    ],
)
def test_errors_teach(change, message):
    (poses, weight, activation, beta_u, beta_a), windows, _ = grid_case("conv")
    given = {"poses": poses, "weight": weight, "activation": activation, "beta_u": beta_u, "beta_a": beta_a}
    with pytest.raises((ValueError, TypeError), match=message):
        routed_em(windows=windows, **{**given, **change})


def test_windows_are_those_of_a_convolution():
    windows = Windows((4, 5), (3, 2), (2, 1), (1, 0))
    grid = torch.arange(1.0, 21).view(1, 1, 4, 5)
    unfolded = torch.nn.functional.unfold(grid, (3, 2), stride=(2, 1), padding=(1, 0))[0].T
    torch.testing.assert_close((windows.table() + 1).float(), unfolded)
    assert windows.out() == (2, 4)
    first, parent, place = windows.links()
    for q in range(20):
        found = {(int(parent[n]), int(place[n])) for n in range(first[q], first[q + 1])}
        assert found == {(p, w) for p in range(8) for w in range(6) if int(windows.table()[p, w]) == q}


@pytest.mark.parametrize("options", [{"variance_floor": -1.0}, {"mass": 0.0}, {"iterations": 0}, {"compete_within": 1}])
def test_options_are_checked_as_those_of_em_routing_are(options):
    windows = Windows((2,), (1,), (1,), (0,))
    with pytest.raises(ValueError, match=r"variance_floor|mass|iterations|compete_within"):
        routed_em(
            torch.rand(1, 2, 1, 2, 2), torch.rand(1, 1, 2, 2, 2), torch.rand(1, 2, 1), 0.0, 0.0, windows, **options
        )


def test_the_table_of_windows_is_made_once():
    windows = Windows((5, 5), (3, 3), (1, 1), (0, 0))
    assert windows.table().data_ptr() == Windows((5, 5), (3, 3), (1, 1), (0, 0)).table().data_ptr()
