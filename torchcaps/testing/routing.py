"""What must hold for every routing, as checks that ship: a user's own routing can run them too."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from torchcaps.errors import InputError
from torchcaps.ops.result import RoutingOutput
from torchcaps.routing import FrozenRouting, FunctionRouting, Routing, RoutingLike, resolve_routing


class RoutingCase(NamedTuple):
    """Random input for a routing: votes ``[B, I, J, D]``, activation ``[B, I]`` in (0, 1)."""

    votes: Tensor
    activation: Tensor


def routing_case(
    batch: int = 3, children: int = 7, parents: int = 4, size: int = 5, *, seed: int = 0, scale: float = 1.0
) -> RoutingCase:
    """A case in float64; ``scale`` is the standard deviation of the votes."""
    generator = torch.Generator().manual_seed(seed)
    votes = scale * torch.randn(batch, children, parents, size, generator=generator, dtype=torch.float64)
    activation = 0.05 + 0.9 * torch.rand(batch, children, generator=generator, dtype=torch.float64)
    return RoutingCase(votes, activation)


def prepared_routing(
    routing: RoutingLike | Callable[..., RoutingOutput],
    case: RoutingCase,
    *,
    noise: float = 0.1,
    seed: int = 0,
) -> Routing:
    """The routing built for the case's sizes, in float64 and evaluation mode, its parameters moved off their start."""
    if isinstance(routing, type) and issubclass(routing, Routing):
        routing = routing()
    is_function = callable(routing) and not isinstance(routing, Routing)
    module = FunctionRouting(routing) if is_function else resolve_routing(routing)  # type: ignore[arg-type]
    module = copy.deepcopy(module)
    _, children, parents, size = case.votes.shape
    module.build(children, parents, size)
    module = module.double().eval()
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.add_(noise * torch.randn(parameter.shape, generator=generator, dtype=torch.float64))
    if isinstance(module, FrozenRouting):
        module.freeze(*case)
    return module


def _equal(actual: RoutingOutput, expected: RoutingOutput, message: str, atol: float = 1e-10) -> None:
    for name in ("pose", "activation", "coupling"):
        try:
            torch.testing.assert_close(getattr(actual, name), getattr(expected, name), rtol=1e-9, atol=atol)
        except AssertionError as error:
            raise AssertionError(f"{message}: {name}: {error}") from None


def _require(condition: bool, message: str) -> None:
    if not condition:
        raise AssertionError(message)


def _coupling(output: RoutingOutput) -> Tensor:
    if output.coupling is None:
        raise AssertionError("a routing gives its coupling [B, I, J], got None")
    return output.coupling


def check_shapes(routing: Routing, case: RoutingCase) -> None:
    """Pose ``[B, J, D]``, activation ``[B, J]`` in [0, 1], coupling ``[B, I, J]``, all of the votes' type."""
    batch, children, parents, size = case.votes.shape
    for dtype in (torch.float64, torch.float32):
        module = copy.deepcopy(routing).to(dtype)
        out = module(case.votes.to(dtype), case.activation.to(dtype))
        expected = {
            "pose": (batch, parents, size),
            "activation": (batch, parents),
            "coupling": (batch, children, parents),
        }
        for name, shape in expected.items():
            tensor = _coupling(out) if name == "coupling" else getattr(out, name)
            _require(tuple(tensor.shape) == shape, f"{name} must have shape {shape}, got {tuple(tensor.shape)}")
            _require(tensor.dtype == dtype, f"{name} must be {dtype} like the votes, got {tensor.dtype}")
        inside = bool(((out.activation >= 0) & (out.activation <= 1 + 1e-6)).all())
        _require(inside, f"activations must be in [0, 1], got {out.activation.aminmax()}")


def check_coupling(routing: Routing, case: RoutingCase) -> None:
    """Couplings are not negative and every child's shares sum to one over the PARENTS, if the routing says so."""
    coupling = _coupling(routing(case.votes, case.activation))
    sums = coupling.sum(dim=-1)
    _require(bool((coupling >= 0).all()), "a coupling is negative")
    if routing.couplings_sum_to_one:
        torch.testing.assert_close(sums, torch.ones_like(sums), msg=lambda m: f"Σ_j c_ij must be 1: {m}")


def check_permutation(routing: Routing, case: RoutingCase) -> None:
    """The order of the children does not matter (unless the routing says it keeps a table by index)."""
    if not routing.permutation_invariant:
        return
    order = torch.randperm(case.votes.shape[1], generator=torch.Generator().manual_seed(1))
    plain = routing(case.votes, case.activation)
    mixed = routing(case.votes[:, order], case.activation[:, order])
    expected = RoutingOutput(plain.pose, plain.activation, _coupling(plain)[:, order])
    _equal(mixed, expected, "exchanging children changed the result")


def check_batch(routing: Routing, case: RoutingCase) -> None:
    """An image's result is the same alone (B=1) and in any batch; an empty batch gives an empty result."""
    together = routing(case.votes, case.activation)
    for image in range(len(case.votes)):
        one = slice(image, image + 1)
        alone = routing(case.votes[one], case.activation[one])
        expected = RoutingOutput(together.pose[one], together.activation[one], _coupling(together)[one])
        _equal(alone, expected, f"image {image} differs alone and in a batch")
    _require(
        len(routing(case.votes[:0], case.activation[:0]).pose) == 0,
        "an empty batch must give an empty result",
    )


def check_zero(routing: Routing, case: RoutingCase) -> None:
    """All-zero votes and activations give finite values and gradients, also in float32."""
    for dtype in (torch.float64, torch.float32):
        module = copy.deepcopy(routing).to(dtype)
        votes = torch.zeros_like(case.votes, dtype=dtype).requires_grad_()
        activation = torch.zeros_like(case.activation, dtype=dtype).requires_grad_()
        out = module(votes, activation)
        loss = (out.pose.sum() + out.activation.sum()) + out.pose.square().sum()
        parameters = [p for p in module.parameters() if p.requires_grad]
        gradients = torch.autograd.grad(loss, [votes, activation, *parameters], allow_unused=True)
        for tensor in (out.pose, out.activation, _coupling(out), *(g for g in gradients if g is not None)):
            _require(bool(tensor.isfinite().all()), f"zero votes gave NaN or infinity in {dtype}")


def check_mask(routing: Routing, case: RoutingCase) -> None:
    """Masked children have no influence, whatever they hold; their coupling and gradient are zero."""
    batch, children, _, _ = case.votes.shape
    generator = torch.Generator().manual_seed(2)
    mask = torch.rand(batch, children, generator=generator) < 0.6
    mask[:, 0] = True
    hidden = ~mask
    clean = routing(case.votes, case.activation, mask)
    for garbage in (1e3, float("nan"), float("inf")):
        votes = case.votes.masked_fill(hidden[..., None, None], garbage).requires_grad_()
        out = routing(votes, case.activation.masked_fill(hidden, garbage), mask)
        _equal(out, clean, f"masked children holding {garbage} changed the result")
        (gradient,) = torch.autograd.grad(out.pose.sum() + out.activation.sum(), votes)
        _require(bool((gradient[hidden] == 0).all()), "a masked child received a gradient")
    _require(bool((_coupling(clean)[hidden] == 0).all()), "a masked child has a coupling")
    if routing.permutation_invariant:
        for image in range(batch):
            keep = mask[image]
            alone = routing(case.votes[image : image + 1, keep], case.activation[image : image + 1, keep])
            torch.testing.assert_close(
                alone.pose[0],
                clean.pose[image],
                msg=lambda m: f"masking a child is not like leaving it out: {m}",
            )


def check_gradients(routing: Routing, case: RoutingCase) -> None:
    """Gradients of pose and activation equal finite differences (``torch.autograd.gradcheck``, float64).

    Routings that hold part of the computation constant on purpose (``exact_gradient``) are passed over.
    """
    if not routing.exact_gradient:
        return
    names = [name for name, parameter in routing.named_parameters() if parameter.requires_grad]

    def function(votes: Tensor, activation: Tensor, *parameters: Tensor) -> tuple[Tensor, Tensor]:
        state = dict(zip(names, parameters, strict=True))
        out = torch.func.functional_call(routing, state, (votes, activation))
        return out.pose, out.activation

    inputs = [case.votes[:2], case.activation[:2], *(routing.get_parameter(name) for name in names)]
    inputs = [tensor.detach().clone().requires_grad_() for tensor in inputs]
    torch.autograd.gradcheck(function, tuple(inputs), atol=1e-6, rtol=1e-4, fast_mode=True)


def check_trace(routing: Routing, case: RoutingCase) -> None:
    """A trace ends in the result, holds one entry per iteration, and is absent unless asked for."""
    out = routing(case.votes, case.activation, trace=True)
    _require(routing(case.votes, case.activation).trace is None, "a trace was kept though none was asked for")
    trace = out.trace
    if trace is None:
        raise AssertionError("trace=True must give a trace")
    _require(len(trace.pose) == getattr(routing, "iterations", 1), "one trace entry per iteration")
    last = RoutingOutput(trace.pose[-1], trace.activation[-1], trace.coupling[-1])
    _equal(last, out, "the last entry of the trace is not the result")
    _require(trace.objective.shape == trace.pose.shape[:2], "the objective must have shape [r, B]")


def check_compile(routing: Routing, case: RoutingCase, backend: str = "aot_eager") -> None:
    """``torch.compile`` takes the routing whole, without graph breaks, and gives the same values and gradients."""
    torch._dynamo.reset()
    compiled = torch.compile(routing, fullgraph=True, backend=backend)
    results = []
    for module in (routing, compiled):
        votes = case.votes.clone().requires_grad_()
        out = module(votes, case.activation)
        (gradient,) = torch.autograd.grad(out.pose.square().sum() + out.activation.sum(), votes)
        results.append((out, gradient))
    (plain, gradient), (fast, fast_gradient) = results
    _equal(fast, plain, "torch.compile changed the result")
    torch.testing.assert_close(fast_gradient, gradient)


def check_state_dict(routing: Routing, case: RoutingCase) -> None:
    """The state dict holds everything: a copy with all its tensors wiped out is the same again after loading it."""
    expected = routing(case.votes, case.activation)
    other = copy.deepcopy(routing)
    wipe_tensors(other)
    other.load_state_dict(routing.state_dict())
    _equal(other(case.votes, case.activation), expected, "the state dict lacks a part of the routing")


def wipe_tensors(module: nn.Module) -> None:
    """Set to zero every tensor that a module holds: parameters, buffers and plain attributes."""
    for part in module.modules():
        plain = [value for value in vars(part).values() if isinstance(value, Tensor)]
        for tensor in (*part.parameters(recurse=False), *part.buffers(recurse=False), *plain):
            tensor.detach().zero_()


ROUTING_CHECKS: dict[str, Callable[[Routing, RoutingCase], Any]] = {
    "shapes": check_shapes,
    "coupling": check_coupling,
    "permutation": check_permutation,
    "batch": check_batch,
    "zero": check_zero,
    "mask": check_mask,
    "gradients": check_gradients,
    "trace": check_trace,
    "compile": check_compile,
    "state_dict": check_state_dict,
}


def assert_routing(
    routing: RoutingLike | Callable[..., RoutingOutput],
    *,
    skip: tuple[str, ...] = (),
    batch: int = 3,
    children: int = 7,
    parents: int = 4,
    size: int = 5,
    seed: int = 0,
) -> None:
    """Check everything that must hold for a routing; raise AssertionError with the property that does not.

    Args:
        routing: a registered name, a mapping, a :class:`~torchcaps.routing.Routing`, or a routing function.
        skip: names of checks in ``ROUTING_CHECKS`` to leave out, such as ``("trace",)`` for a routing without one.
        batch: size of the case: images,
        children: children,
        parents: parents,
        size: numbers in a parent's pose.
        seed: of the random case.
    """
    unknown = set(skip) - set(ROUTING_CHECKS)
    if unknown:
        raise InputError(f"no such check: {', '.join(sorted(unknown))}. Known: {', '.join(ROUTING_CHECKS)}.")
    case = routing_case(batch, children, parents, size, seed=seed)
    for name, check in ROUTING_CHECKS.items():
        if name not in skip:
            check(prepared_routing(routing, case), case)
