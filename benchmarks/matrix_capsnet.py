"""A training step of `matrix-capsnet` against the same network with stored votes and plain autograd.

    python -m benchmarks.matrix_capsnet [--batch 32] [--rounds 5]

Both give the same loss and gradients, which is checked first. Memory is the peak of a process of its own that does one
step: resident in all, and above what it had before the step. Writes results/matrix_capsnet.csv.
"""

from __future__ import annotations

import argparse
import csv
import math
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from torchcaps import __version__, create_model
from torchcaps.experiments.memory import measure_peak
from torchcaps.losses import spread_loss
from torchcaps.ops import RoutingOutput, Windows, routed_path
from torchcaps.ops.schedules import named_schedule, resolve_schedule
from torchcaps.ops.windows import window_votes
from torchcaps.routing import EMRouting

RESULTS = Path(__file__).parent.parent / "results" / "matrix_capsnet.csv"
COMMAND = "python -m benchmarks.matrix_capsnet"
FREE_GB = 14  # what the plain version may take


class PlainEM(EMRouting):
    """EM routing as it is usually written: votes of a layer computed once and kept, everything left to autograd."""

    def route_windows(  # type: ignore[override]
        self,
        poses: Tensor,
        weight: Tensor,
        activation: Tensor,
        windows: Windows,
        *,
        shift: Tensor | None = None,
        **_: object,
    ) -> RoutingOutput:
        """See :class:`EMRouting`; without masks, padding and traces."""
        table = windows.table()
        child, places = table.flatten(), table.shape[1]
        votes = window_votes(poses, weight, windows, shift).flatten(-2)  # [B, P, W, T, J, H]
        batch, positions, _, types, parents, size = votes.shape
        seen = torch.bincount(child, minlength=poses.shape[1])[table].to(votes)  # by how many windows, [P, W]
        share = (1 / (seen * parents))[None, :, :, None, None].expand(votes.shape[:-1])
        scale = self.mass / (types / (seen * parents)).sum(dim=1)[None, :, None]
        a = activation[:, table][..., None]
        lambdas = resolve_schedule("λ", named_schedule(self.inverse_temperature), self.iterations)
        for t, lam in enumerate(lambdas):
            r = share * a
            amount = r.sum(dim=(2, 3))  # [B, P, J]
            mean = (r[..., None] * votes).sum(dim=(2, 3)) / amount[..., None]
            away = (votes - mean[:, :, None, None]).square()
            variance = ((r[..., None] * away).sum(dim=(2, 3)) / amount[..., None]).clamp_min(self.variance_floor)
            log_sigma = 0.5 * variance.log().sum(dim=-1)
            log_a = F.logsigmoid(lam * (self.beta_a - (self.beta_u * size + log_sigma) * amount * scale))
            if t + 1 < self.iterations:
                score = (log_a - log_sigma)[:, :, None, None] - 0.5 * (away / variance[:, :, None, None]).sum(dim=-1)
                flat = score.logsumexp(dim=-1).view(batch, positions * places, types)
                top = flat.detach().amax()
                total = flat.new_zeros(batch, poses.shape[1], types).index_add(1, child, (flat - top).exp())
                share = (score - (total.log() + top)[:, table][..., None]).exp()
        return RoutingOutput(mean, log_a.exp(), votes.new_empty(0))


def network(plain: bool, side: int = 32) -> nn.Module:
    """The paper's network for a 32×32 stereo pair of five classes, three iterations."""
    torch.manual_seed(0)
    model = create_model("matrix-capsnet", (2, side, side), 5)
    if plain:
        for module in model.modules():
            if isinstance(module, EMRouting):
                module.__class__ = PlainEM
    return model


def step(model: nn.Module, images: Tensor, labels: Tensor) -> Tensor:
    """Forward, loss, backward."""
    model.zero_grad(set_to_none=True)
    loss = spread_loss(model(images).scores, labels, 0.9)
    loss.backward()
    return loss.detach()


def inputs(batch: int, side: int = 32) -> tuple[Tensor, Tensor]:
    """A random batch."""
    g = torch.Generator().manual_seed(1)
    return torch.randn(batch, 2, side, side, generator=g), torch.randint(5, (batch,), generator=g)


def check_agreement(batch: int) -> float:
    """The largest difference of loss and gradients in float64, relative to the largest gradient; raises above 1e-9."""
    images, labels = inputs(batch)
    found = []
    for plain in (False, True):
        model = network(plain).double()
        loss = step(model, images.double(), labels)
        found.append([loss, *(p.grad for p in model.parameters())])
    worst = max(float((x - y).abs().max() / y.abs().max().clamp_min(1e-6)) for x, y in zip(*found, strict=True))
    if not worst < 1e-9:
        raise SystemExit(f"the two networks disagree by {worst}: nothing is reported.")
    return worst


def seconds(run: Callable[[], object], rounds: int) -> float:
    """Median over rounds after one to warm up."""
    run()
    times = []
    for _ in range(rounds):
        start = time.perf_counter()
        run()
        times.append(time.perf_counter() - start)
    return statistics.median(times)


def memory(plain: bool, batch: int) -> tuple[float, float]:
    """Peak resident GB of a process that does one step, and how much of it the step took."""
    command = [sys.executable, "-m", "benchmarks.matrix_capsnet", "--measure", "plain" if plain else "torchcaps"]
    output = subprocess.check_output([*command, "--batch", str(batch)], text=True)
    total, extra = map(float, output.split())
    return total, extra


def measure(plain: bool, batch: int) -> None:
    """What :func:`memory` reads: code and threads are loaded by a small case first."""
    torch.set_num_threads(2)
    small, model = (network(plain, side=side) for side in (17, 32))
    step(small, *inputs(1, side=17))
    images, labels = inputs(batch)
    before, peak = measure_peak(lambda: step(model, images, labels))
    print(peak / 1e9, (peak - before) / 1e9)


def largest_plain_batch(most: int) -> int:
    """The largest power of two that the plain version can run in ``FREE_GB``."""
    _, one = memory(True, 1)
    return min(most, 2 ** int(math.log2(FREE_GB / one)))


def main() -> None:
    """Check, measure, write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--measure", choices=("plain", "torchcaps"), help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.measure:
        return measure(arguments.measure == "plain", arguments.batch)
    torch.set_num_threads(2)
    worst = check_agreement(2)
    print(f"loss and gradients agree to {worst:.1e} (float64)")
    shared = largest_plain_batch(arguments.batch)
    total, extra = memory(False, arguments.batch)
    rows = [
        (f"peak resident memory, batch {arguments.batch}", "< 2.5", total, "GB"),
        (f"of it for the step, batch {arguments.batch}", "", extra, "GB"),
    ]
    images, labels = inputs(shared)
    times = []
    for plain in (False, True):
        model = network(plain)
        times.append(seconds(lambda model=model: step(model, images, labels), arguments.rounds))
    ours, theirs = memory(False, shared), memory(True, shared)
    rows += [
        (f"faster than plain autograd, batch {shared}", "≥ 4", times[1] / times[0], "×"),
        (f"less memory for the step, batch {shared}", "≥ 8", theirs[1] / ours[1], "×"),
        (f"less resident memory in all, batch {shared}", "", theirs[0] / ours[0], "×"),
        (f"plain autograd, memory for the step per image, batch {shared}", "", 1e3 * theirs[1] / shared, "MB"),
        (f"torchcaps, memory for the step per image, batch {shared}", "", 1e3 * ours[1] / shared, "MB"),
    ]
    with RESULTS.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["what", "bar", "measured", "unit", "path", "threads", "version", "command"])
        for what, bar, value, unit in rows:
            print(f"{what:<60}{bar:>8}{value:10.3g} {unit}")
            writer.writerow([what, bar, f"{value:.4g}", unit, routed_path(), 2, __version__, COMMAND])
    return None


if __name__ == "__main__":
    main()
