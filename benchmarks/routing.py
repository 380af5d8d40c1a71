"""Routing without votes, side by side with what people write in torch.

    python -m benchmarks.routing

B=128, I=1152, J=10, d=8, D=16, r=3, float32, two threads, all in one process. Outputs and gradients are compared with
the float64 reference first; if any disagrees, nothing is reported. Times are the least of several interleaved rounds;
absolute times mean little, their ratios are the result. The table goes to results/routing.csv.
"""

from __future__ import annotations

import csv
import sys
from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor

from benchmarks.memory import peak_extra_memory
from benchmarks.timing import least_seconds
from torchcaps import __version__
from torchcaps.ops import dynamic_routing, routed_linear, routed_path, squash
from torchcaps.ops.backends import use_backend

SIZES = {"B": 128, "I": 1152, "J": 10, "d": 8, "D": 16}
RESULTS = Path(__file__).parent.parent / "results" / "routing.csv"


def inputs(dtype: torch.dtype = torch.float32, **sizes: int) -> tuple[Tensor, Tensor]:
    """Poses like squashed ones and weights like trained ones."""
    n = SIZES | sizes
    generator = torch.Generator().manual_seed(0)
    poses = squash(torch.randn(n["B"], n["I"], n["d"], generator=generator, dtype=torch.float64))
    weight = 0.1 * torch.randn(n["I"], n["J"], n["d"], n["D"], generator=generator, dtype=torch.float64)
    return poses.to(dtype), weight.to(dtype)


def einsum_plain(poses: Tensor, weight: Tensor) -> Tensor:
    """Votes [B, I, J, D] once by einsum, a softmax and two matrix products per iteration: as it is usually written."""
    return _by_matmul(torch.einsum("bid,ijdk->bijk", poses, weight).transpose(1, 2))


def einsum_matmul(poses: Tensor, weight: Tensor) -> Tensor:
    """The same with the votes laid out once for the products that follow: the best torch that we know."""
    return _by_matmul(torch.einsum("bid,ijdk->bjik", poses, weight).contiguous())


def _by_matmul(votes: Tensor, iterations: int = 3) -> Tensor:
    """Dynamic routing of votes seen as [B, J, I, D]."""
    logits = votes.new_zeros(votes.shape[:3])
    for t in range(iterations):
        pose = squash(torch.matmul(logits.softmax(dim=1)[:, :, None], votes)[:, :, 0])
        if t + 1 < iterations:
            logits = logits + torch.matmul(votes, pose[..., None])[..., 0]
    return pose


def broadcast(poses: Tensor, weight: Tensor, iterations: int = 3) -> Tensor:
    """Broadcast products and sums: what most repositories do."""
    votes = (poses[:, :, None, :, None] * weight).sum(dim=3)  # [B, I, J, D]
    logits = votes.new_zeros(*votes.shape[:3], 1)
    for t in range(iterations):
        pose = squash((logits.softmax(dim=2) * votes).sum(dim=1, keepdim=True))
        if t + 1 < iterations:
            logits = logits + (votes * pose).sum(dim=-1, keepdim=True)
    return pose[:, 0]


def fused(poses: Tensor, weight: Tensor) -> Tensor:
    """The library."""
    return routed_linear(poses, weight).pose


def fallback(poses: Tensor, weight: Tensor) -> Tensor:
    """The library without its kernel."""
    with use_backend("torch"):
        return routed_linear(poses, weight).pose


def forward(function: Callable[[Tensor, Tensor], Tensor], poses: Tensor, weight: Tensor) -> None:
    """One inference."""
    with torch.no_grad():
        function(poses, weight)


def forward_backward(function: Callable[[Tensor, Tensor], Tensor], poses: Tensor, weight: Tensor) -> list[Tensor]:
    """One training step's worth: pose, and the gradients of its squares."""
    leaves = [tensor.detach().requires_grad_() for tensor in (poses, weight)]
    with use_backend("torch" if function is fallback else None):  # also for the backward pass
        pose = function(*leaves)
        return [pose.detach(), *torch.autograd.grad(pose.square().sum(), leaves)]


def check_agreement() -> None:
    """Refuse to go on unless every contestant gives the reference's values and gradients."""
    poses, weight = inputs(torch.float64)
    leaves = [poses.requires_grad_(), weight.requires_grad_()]
    pose = dynamic_routing(torch.einsum("bid,ijdk->bijk", *leaves)).pose
    expected = [pose.detach(), *torch.autograd.grad(pose.square().sum(), leaves)]
    for dtype, tolerance in ((torch.float32, 1e-5), (torch.float64, 1e-10)):
        for function in (fused, fallback, einsum_plain, einsum_matmul, broadcast):
            got = forward_backward(function, *inputs(dtype))
            for name, a, e in zip(("pose", "gradient of poses", "gradient of weight"), got, expected, strict=True):
                error = float((a.double() - e).norm() / e.norm())
                if not error < tolerance:
                    sys.exit(f"{function.__name__} disagrees in {dtype}: {name} is off by {error:.1e}. No ratios.")


def flops() -> float:
    """Work of a forward pass: votes r times, logits and sums r−1 times (the first sum is part of its product)."""
    n = SIZES
    return 2.0 * n["B"] * n["I"] * n["J"] * n["D"] * (3 * n["d"] + 2 + 2)


def measure() -> list[tuple[str, str, float, str]]:
    """Rows: what, bar, measured, unit."""
    poses, weight = inputs()
    one = poses[:1].contiguous()
    square = torch.randn(2048, 2048)
    rows: list[tuple[str, str, float, str]] = []

    quick = least_seconds({"fused": lambda: forward(fused, poses, weight), "sgemm": lambda: square @ square}, 40)
    slow = least_seconds(
        {
            "fused": lambda: forward(fused, poses, weight),
            "plain": lambda: forward(einsum_plain, poses, weight),
            "best": lambda: forward(einsum_matmul, poses, weight),
            "broadcast": lambda: forward(broadcast, poses, weight),
        },
        9,
    )
    mine = slow["fused"]  # as many rounds as the others had
    rows.append(("forward vs einsum + matmul, votes as they come", "≥ 15", slow["plain"] / mine, "×"))
    rows.append(("forward vs einsum + matmul, votes laid out for it", "", slow["best"] / mine, "×"))
    rows.append(("forward vs broadcast", "≥ 45", slow["broadcast"] / mine, "×"))
    train = least_seconds(
        {
            f.__name__: lambda f=f: forward_backward(f, poses, weight)
            for f in (fused, fallback, einsum_plain, einsum_matmul, broadcast)
        },
        5,
    )
    rows.append(("forward + backward vs einsum, as they come", "≥ 12", train["einsum_plain"] / train["fused"], "×"))
    rows.append(("forward + backward vs einsum, laid out", "", train["einsum_matmul"] / train["fused"], "×"))
    rows.append(("forward + backward vs broadcast", "≥ 25", train["broadcast"] / train["fused"], "×"))
    share = (flops() / quick["fused"]) / (2 * 2048**3 / quick["sgemm"])
    rows.append(("FLOP/s of the forward pass vs a large sgemm", "≥ 60", 100 * share, "%"))
    memory = {name: peak_extra_memory(name) for name in ("fused", "fallback", "einsum_matmul")}
    rows.append(("extra memory, forward + backward", "< 16", memory["fused"], "MB"))
    rows.append(("the same for einsum + autograd", "", memory["einsum_matmul"], "MB"))
    single = least_seconds(
        {
            "fused": lambda: forward(fused, one, weight),
            "plain": lambda: forward(einsum_plain, one, weight),
            "best": lambda: forward(einsum_matmul, one, weight),
        },
        1000,  # a millisecond each: long enough to see past what else the machine does
    )
    rows.append(("B=1 inference vs einsum + matmul, as they come", "≥ 3", single["plain"] / single["fused"], "×"))
    rows.append(("B=1 inference vs einsum + matmul, laid out", "", single["best"] / single["fused"], "×"))
    for letter in ("B", "I", "J"):
        double = inputs(**{letter: 2 * SIZES[letter]})
        pair = least_seconds(
            {"one": lambda: forward(fused, poses, weight), "two": lambda d=double: forward(fused, *d)}, 60
        )
        rows.append((f"cost when {letter} doubles", "1.7 … 2.3", pair["two"] / pair["one"], "×"))
    rows.append(("torch fallback vs einsum + autograd", "≥ 1", train["einsum_matmul"] / train["fallback"], "×"))
    rows.append(("its memory vs einsum + autograd", "≤ 25", 100 * memory["fallback"] / memory["einsum_matmul"], "%"))
    return rows


def main() -> None:
    """Check, measure, print and write."""
    torch.set_num_threads(2)
    print(f"path: {routed_path()}")
    check_agreement()
    print("outputs and gradients agree with the float64 reference (1e-5 in float32, 1e-10 in float64)\n")
    rows = measure()
    print("| | bar | measured |\n| --- | --- | --- |")
    for what, bar, value, unit in rows:
        print(f"| {what} | {bar and f'{bar} {unit}'} | {value:.3g} {unit} |")
    with RESULTS.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["what", "bar", "measured", "unit", "path", "threads", "version", "command"])
        for what, bar, value, unit in rows:
            writer.writerow(
                [what, bar, f"{value:.4g}", unit, routed_path(), 2, __version__, "python -m benchmarks.routing"]
            )


if __name__ == "__main__":
    main()
