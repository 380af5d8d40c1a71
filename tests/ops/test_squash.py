import pytest
import torch

from torchcaps.ops import SQUASH_KINDS, squash
from torchcaps.ops.squash import squash_reference


@pytest.mark.parametrize("kind", SQUASH_KINDS)
def test_value_and_gradient_equal_the_reference(kind):
    pose = torch.randn(6, 5, dtype=torch.float64, requires_grad=True)
    weight = torch.randn(6, 5, dtype=torch.float64)
    expected = torch.stack([squash_reference(vector, kind) for vector in pose])
    actual = squash(pose, kind)
    torch.testing.assert_close(actual, expected)
    (want,) = torch.autograd.grad((expected * weight).sum(), pose)
    (got,) = torch.autograd.grad((actual * weight).sum(), pose)
    torch.testing.assert_close(got, want)


@pytest.mark.parametrize("kind", SQUASH_KINDS)
def test_zero_vector_has_value_and_gradient_zero(kind):
    pose = torch.zeros(3, 4, requires_grad=True)
    out = squash(pose, kind)
    (gradient,) = torch.autograd.grad(out.sum(), pose)
    assert (out == 0).all()
    assert (gradient == 0).all()


@pytest.mark.parametrize("kind", SQUASH_KINDS)
@pytest.mark.parametrize("exponent", range(-12, 7))
def test_no_precision_is_lost_from_1e_minus_12_to_1e6(kind, exponent):
    direction = torch.nn.functional.normalize(torch.randn(8, dtype=torch.float64), dim=0)
    exact = (10.0**exponent * direction).requires_grad_()
    single = exact.detach().float().requires_grad_()
    weight = torch.randn(8, dtype=torch.float64)
    (want,) = torch.autograd.grad((squash(exact, kind) * weight).sum(), exact)
    (got,) = torch.autograd.grad((squash(single, kind) * weight.float()).sum(), single)
    torch.testing.assert_close(squash(single, kind).double(), squash(exact, kind), rtol=1e-6, atol=0)
    assert (got.double() - want).norm() <= 2e-6 * want.norm()
    torch.testing.assert_close(squash(exact, kind), _exact_squash(exact.detach(), kind), rtol=1e-13, atol=0)


def _exact_squash(pose, kind):
    """The length in 60 digits, as the formulas say."""
    import mpmath

    with mpmath.workdps(60):
        n = mpmath.sqrt(sum(mpmath.mpf(x) ** 2 for x in pose.tolist()))
        factor = {
            "sabour": n / (1 + n**2),
            "half": n / (mpmath.mpf(1) / 2 + n**2),
            "exponential": (1 - mpmath.exp(-n)) / n,
            "unit": 1 / n,
            "none": 1,
        }[kind]
        return torch.tensor([float(mpmath.mpf(x) * factor) for x in pose.tolist()], dtype=torch.float64)


@pytest.mark.parametrize("kind", SQUASH_KINDS)
def test_gradcheck_and_direction(kind):
    pose = torch.randn(4, 3, dtype=torch.float64, requires_grad=True)
    torch.autograd.gradcheck(lambda p: squash(p, kind), pose)
    out = squash(pose, kind)
    assert (torch.nn.functional.cosine_similarity(out, pose) > 1 - 1e-12).all()
    assert kind == "none" or (out.norm(dim=1) <= 1 + 1e-12).all()


def test_any_dimension_can_hold_the_vector():
    pose = torch.randn(2, 5, 3)
    torch.testing.assert_close(squash(pose, dim=1), squash(pose.movedim(1, -1)).movedim(-1, 1))


def test_unknown_kind_names_the_nearest():
    with pytest.raises(ValueError, match=r"unknown squash kind 'sabor'. Did you mean 'sabour'"):
        squash(torch.zeros(3), "sabor")
