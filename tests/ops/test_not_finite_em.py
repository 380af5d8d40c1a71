"""EM routing of NaN, infinities and what overflows, on every path: the rule of ``torchcaps/ops/finite.py``."""

import math

import pytest
import torch
from paths import VARIANTS, on_path

from tests.ops.test_not_finite import DTYPES, INF, NAN, hostile, same
from torchcaps.ops import Windows, em_routing, routed_em
from torchcaps.ops.em import backend, op
from torchcaps.ops.em import torch as passes

GRIDS = {
    "conv": (Windows((3, 4), (2, 2), (1, 2), (0, 0)), (4, 4, 4)),
    "padded": (Windows((3, 3), (2, 2), (2, 2), (1, 1)), (3, 2, 3)),
    "class": (Windows.whole((2, 3)), (2, 2, 2)),
    "one": (Windows((1,), (1,), (1,), (0,)), (1, 4, 5)),
}


@pytest.fixture(params=["torch", *VARIANTS])
def path(request):
    """Each path that this machine has, in turn."""
    return request.param


def on(path, call):
    """The call on one path."""
    with pytest.MonkeyPatch.context() as patch, on_path(path):
        patch.setattr(passes, "CHUNK_BYTES", 1)
        return call()


def case(grid, dtype, types=2, parents=3, batch=2):
    windows, (rows, inner, columns) = GRIDS[grid]
    g = torch.Generator().manual_seed(0)
    positions, places = math.prod(windows.size), 1 if windows.shared else math.prod(windows.kernel)

    def draw(*shape):
        return torch.randn(*shape, generator=g, dtype=torch.float64).to(dtype)

    leaves = {
        "poses": draw(batch, positions, types, rows, inner),
        "weight": 0.7 * draw(places, types, parents, inner, columns),
        "activation": draw(batch, positions, types).sigmoid(),
        "beta_u": 0.3 * draw(parents),
        "beta_a": 0.3 * draw(parents),
    }
    shift = draw(positions, rows, columns) if windows.shared else None
    return leaves, windows, shift


def results(leaves, windows, shift, stored=False, **options):
    """Pose, activation and all gradients; with ``stored`` votes of the only position."""
    leaves = {name: leaf.clone().requires_grad_() for name, leaf in leaves.items()}
    if stored:
        votes = torch.einsum("bird,ijdk->bijrk", leaves["poses"][:, 0], leaves["weight"][0]).flatten(-2)
        out = em_routing(votes, leaves["activation"][:, 0], leaves["beta_u"], leaves["beta_a"], **options)
        pose, activation = out.pose[:, None], out.activation[:, None]
    else:
        pose, activation, *_ = routed_em(*leaves.values(), windows, shift=shift, **options)
    g = torch.Generator().manual_seed(5)
    seeds = [torch.randn(out.shape, generator=g).to(out) for out in (pose, activation)]
    found = torch.autograd.grad(
        (pose, activation), list(leaves.values()), seeds, allow_unused=True, materialize_grads=True
    )
    return {"pose": pose, "activation": activation, **{f"d{k}": v for k, v in zip(leaves, found, strict=True)}}


def spoil(leaves, where, value):
    """One number of the last image, of the first weight or of the first parent; or an absent child's pose."""
    leaves = {name: leaf.clone() for name, leaf in leaves.items()}
    if where == "absent":
        leaves["activation"][-1, 0, 0] = 0
        where = "poses"
    leaves[where][(-1 if where in ("poses", "activation") else 0, *[0] * (leaves[where].dim() - 1))] = value
    return leaves


WHERE = ["poses", "weight", "activation", "absent", "beta_u", "beta_a"]


def values(where, dtype):
    """Huge costs leave a parent out or swallow all others by rounding: of betas only what is not finite is compared."""
    every = hostile(dtype)
    if where in ("beta_u", "beta_a"):
        return [v for v in every if not abs(v) < INF]
    return [v for v in every if not v < 0] if where == "activation" else every


@pytest.mark.skipif(not VARIANTS, reason="no kernel")
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("iterations", [1, 3])
@pytest.mark.parametrize("grid", GRIDS)
@pytest.mark.parametrize("where", WHERE)
def test_kernel_and_torch_agree(where, grid, iterations, dtype):
    tolerance = 1e-3 if dtype == torch.float32 else 1e-7
    for types, parents, compete in ((2, 3, "positions"), (5, 9, "types"), (1, 1, "positions")):
        base, windows, shift = case(grid, dtype, types, parents)
        for value in values(where, dtype):
            leaves = spoil(base, where, value)

            def run(leaves=leaves, compete=compete, windows=windows, shift=shift):
                return results(leaves, windows, shift, iterations=iterations, compete=compete)

            expected = on("torch", run)
            for variant in VARIANTS[-2:]:
                for name, actual in on(variant, run).items():
                    if where == "activation" and name.startswith("d") and 0 < value < INF:
                        continue  # gradients of a mass at the end of the range are differences of such numbers
                    same(actual, expected[name], tolerance, f"{where} {value} {variant} {types} {parents}, {name}: ")


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("iterations", [1, 2, 3])
def test_stored_votes_agree(path, iterations, dtype):
    base, windows, shift = case("one", dtype, types=5)
    for where in WHERE:
        for value in values(where, dtype):
            if where == "absent" and INF > abs(value) > 1:
                continue  # its score overflows: NaN with stored votes, without them it counts as nothing
            leaves = spoil(base, where, value)
            stored = results(leaves, windows, shift, stored=True, iterations=iterations)
            found = on(path, lambda leaves=leaves: results(leaves, windows, shift, iterations=iterations))
            for name in ("pose", "activation"):
                same(found[name], stored[name], 1e-3, f"{where} {value}, {name}: ")


@pytest.mark.parametrize("value", [NAN, INF, -INF])
@pytest.mark.parametrize("where", WHERE)
def test_what_is_not_finite_shows(path, where, value):
    """In the pose or the activation of every parent that it reaches, with one iteration and with three."""
    base, windows, shift = case("class", torch.float32)
    for iterations in (1, 3):
        leaves = spoil(base, where, value)
        out = on(path, lambda leaves=leaves, n=iterations: results(leaves, windows, shift, iterations=n))
        seen = out["activation"].isnan()  # [B, P, J]
        if where in ("poses", "activation", "absent"):
            assert seen[-1].all()
            assert not seen[0].any()
        else:
            assert seen[..., 0].all()
            assert seen.all() == (iterations > 1)


@pytest.mark.parametrize("value", [NAN, INF, -INF, 1e38])
@pytest.mark.parametrize("grid", GRIDS)
def test_masked_children_and_absent_parents_stay_hidden(path, grid, value):
    leaves, windows, shift = case(grid, torch.float32)
    g = torch.Generator().manual_seed(4)
    mask = torch.rand(leaves["activation"].shape, generator=g) < 0.6
    present = torch.rand(2, len(windows.table()), generator=g) < 0.7
    for options in ({"mask": mask}, {"mask": mask, "present": present}):
        clean = on(path, lambda options=options: results(leaves, windows, shift, **options))
        junk = {**leaves, "poses": leaves["poses"].masked_fill(~mask[..., None, None], value)}
        junk["activation"] = leaves["activation"].masked_fill(~mask, value)
        found = on(path, lambda junk=junk, options=options: results(junk, windows, shift, **options))
        for name, right in clean.items():
            assert right.isfinite().all()
            torch.testing.assert_close(found[name], right)


def test_padding_and_absent_parents_do_not_hold_the_first_child(path):
    """In torch a place without a child is filled with the first child's vote: it must not show there."""
    leaves, windows, shift = case("padded", torch.float32)
    leaves["poses"][:, 0] = NAN
    out = on(path, lambda: results(leaves, windows, shift, iterations=1, compete="types"))
    sees = torch.tensor([0 in row for row in windows.table().tolist()])
    assert out["pose"][:, sees].isnan().all()
    assert out["pose"][:, ~sees].isfinite().all()
    present = ~sees.expand(2, -1)
    out = on(path, lambda: results(leaves, windows, shift, compete="types", present=present))
    assert all(out[name].isfinite().all() for name in ("pose", "activation", "dweight"))


def test_scores_that_overflow_are_no_shares(path):
    """Finite votes so far from every parent that no score is finite: the child is not quietly left out."""
    leaves, windows, shift = case("class", torch.float32)
    leaves["poses"][-1, 0] = 1e15
    out = on(path, lambda: results(leaves, windows, shift, inverse_temperature=1e-9, variance_floor=1e-30))
    assert out["pose"][0].isfinite().all()
    parents = backend.Parents(torch.zeros(2, 1, 3), torch.zeros(2, 1, 3, 4), torch.full((2, 1, 3, 4), 1e30))
    children = backend.Children(leaves["poses"], leaves["weight"], leaves["activation"], shift)
    found = on(path, lambda: op.em_moments(children, parents, windows, None, True))
    assert found.mean[-1].isnan().all()
    assert found.mean[0].isfinite().all()


def test_parents_past_the_last_take_nothing(path):
    """Scores below −1e30 lose against no lane that holds no parent."""
    leaves, windows, shift = case("class", torch.float32)
    parents = backend.Parents(torch.zeros(2, 1, 3), torch.zeros(2, 1, 3, 4), torch.full((2, 1, 3, 4), 1e32))
    children = backend.Children(leaves["poses"], leaves["weight"], leaves["activation"], shift)
    found = on(path, lambda: op.em_moments(children, parents, windows, None, True))
    torch.testing.assert_close(found.amount.sum(dim=(1, 2)), leaves["activation"].sum(dim=(1, 2)))


@pytest.mark.parametrize("parents", [1, 3])
@pytest.mark.parametrize("grid", GRIDS)
def test_empty_batches(path, grid, parents):
    leaves, windows, shift = case(grid, torch.float32, types=1, parents=parents, batch=0)
    out = on(path, lambda: results(leaves, windows, shift))
    assert out["pose"].shape[:3] == (0, len(windows.table()), parents)
    assert (out["dweight"] == 0).all()
    assert (out["dbeta_u"] == 0).all()
    if grid == "one":
        stored = results(leaves, windows, shift, stored=True)
        assert stored["pose"].shape == out["pose"].shape


@pytest.mark.parametrize("activation", [1e-44, 1e-30, 1e30, 1e37])
def test_extreme_activations_have_the_right_gradients(path, activation):
    """Mean and variance depend on ratios of activations only: gradients of poses too."""
    leaves, windows, shift = case("class", torch.float32)
    base = {**leaves, "activation": torch.ones_like(leaves["activation"])}
    extreme = {**leaves, "activation": torch.full_like(leaves["activation"], activation)}

    def run(given):
        poses = given["poses"].clone().requires_grad_()
        children = backend.Children(poses, given["weight"], given["activation"], shift)
        found = op.em_moments(children, None, windows, None, True)
        (gradient,) = torch.autograd.grad(found.mean.sum() + found.variance.square().sum(), poses)
        return gradient

    torch.testing.assert_close(on(path, lambda: run(extreme)), on(path, lambda: run(base)), rtol=1e-3, atol=1e-4)
