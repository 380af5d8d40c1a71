"""The convolution against torch's: its bars, the costs behind the choice between them, and whether the choice is right.

    python -m benchmarks.convolution [bars | calibrate | check | random] [--seconds 180] [--seed 0]

`calibrate` times random sizes of the sweep (kernels 1 to 11, strides 1 to 3, channels 1 to 512, images 8 to 96, batches
1 to 256) by every way that may be the fastest, and writes torchcaps/ops/conv/costs.json. `check` takes other sizes,
compares results and gradients with float64, times each pass of `torchcaps.ops.conv2d` against torch's, and writes
results/convolution_sweep.csv. `bars` are the layers of the paper: results/convolution.csv. `random` compares 10,000
random sizes with torch. Two threads, float32; times are the least of rounds that take turns.
"""

from __future__ import annotations

import argparse
import json
import math
import random
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median

import torch
import torch.nn.functional as F
from torch import Tensor

from benchmarks.soak_record import record
from benchmarks.timing import least_seconds, write_rows
from torchcaps import __version__
from torchcaps.ops import conv2d
from torchcaps.ops.backends import use_backend
from torchcaps.ops.conv import cpu, rule
from torchcaps.ops.conv.backend import PASSES, Pass, PassName, TorchConvolution
from torchcaps.ops.conv.sizes import Sizes

COMMAND = "python -m benchmarks.convolution"
COSTS = Path(rule.__file__).parent / "costs.json"
TORCH, KERNELS = TorchConvolution(), cpu.KernelConvolution()
MOST_PRODUCTS, MOST_NUMBERS = 5e9, 3e7


def random_sizes(dice: random.Random) -> Sizes:
    """Sizes of the sweep; those that take too long or too much memory are drawn again."""

    def size(least: int, most: int) -> int:
        return round(math.exp(dice.uniform(math.log(least - 0.49), math.log(most + 0.49))))

    while True:
        kernel, stride, image = dice.randint(1, 11), dice.randint(1, 3), size(8, 96)
        padding = dice.choice((0, kernel // 2))
        if image + 2 * padding < kernel:
            continue
        n = Sizes(size(1, 256), size(1, 512), (image,) * 2, size(1, 512), (kernel,) * 2, (stride,) * 2, (padding,) * 2)
        maps = max(n.channels * math.prod(n.image), n.out_channels * math.prod(n.out))
        if n.products < MOST_PRODUCTS and n.batch * maps < MOST_NUMBERS:
            return n


def tensors(n: Sizes, seed: int = 0) -> tuple[Tensor, Tensor, Tensor]:
    """Images, weight and a gradient of the result."""
    generator = torch.Generator().manual_seed(seed)
    images = torch.randn(n.batch, n.channels, *n.image, generator=generator)
    weight = torch.randn(n.out_channels, n.channels, *n.kernel, generator=generator)
    return images, weight, torch.randn(n.batch, n.out_channels, *n.out, generator=generator)


def calls(backend: object, n: Sizes, images: Tensor, weight: Tensor, grad: Tensor) -> dict[str, Callable[[], object]]:
    """The three passes by a backend; a weight is new every time, as it is in training."""

    def fresh(call: Callable[[], object]) -> Callable[[], object]:
        def run() -> object:
            cpu.spectra.clear()
            return call()

        return run

    return {
        "forward": fresh(lambda: backend.forward(n, images, weight, None, False)),
        "images": fresh(lambda: backend.image_gradient(n, grad, images, weight)),
        "weight": lambda: backend.weight_gradient(n, grad, images, weight, False),
    }


def rounds_for(call: Callable[[], object]) -> int:
    """As many rounds as take about a twentieth of a second."""
    call()
    start = time.perf_counter()
    call()
    return min(50, max(3, round(0.05 / (time.perf_counter() - start))))


def calibrate(seconds: float, seed: int) -> None:
    """Measure, and find the costs that fit best: no negative ones, and relative errors of equal weight."""
    from scipy.optimize import nnls

    dice, end = random.Random(seed), time.time() + seconds
    found: dict[tuple[str, PassName], list[tuple[list[float], float]]] = {}
    rates = []
    while time.time() < end:
        n = random_sizes(dice)
        given = tensors(n)
        for name, call in calls(TORCH, n, *given).items():
            taken = least_seconds({"torch": call}, rounds_for(call))["torch"]
            rates.append(rule.predict_torch(Pass(name, n), {"torch": {"product": 1.0, "fresh": 0.0}}, 1) / taken)
        for name in PASSES:
            plan = Pass(name, n)
            ways = sorted(rule.list_ways(plan), key=lambda way: rule.predict(plan, way, rule.load_costs(), 2))
            for way in ways[:2]:
                KERNELS._way = lambda *_, way=way: way
                call = calls(KERNELS, n, *given)[name]
                taken = least_seconds({"ours": call}, rounds_for(call))["ours"]
                found.setdefault((way.name, name), []).append((rule.work_of(plan, way), taken))
    costs: dict[str, dict[str, object]] = {rule.FOURIER: {}, rule.FEW: {}}
    for (way, name), rows in found.items():
        work = torch.tensor([[row[0], *(one / 2 for one in row[1:])] for row, _ in rows], dtype=torch.float64)
        taken = torch.tensor([taken for _, taken in rows], dtype=torch.float64)
        fitted, _ = nnls((work / taken[:, None]).numpy(), torch.ones(len(rows)).double().numpy())
        spread = (work @ torch.from_numpy(fitted) / taken).log().std()
        print(f"{way}, {name}: {len(rows)} measurements, predicted to {math.exp(spread) - 1:.0%}")
        costs[way][name] = [float(f"{cost:.3g}") for cost in fitted]
    best = sorted(rates)[int(0.995 * len(rates))]  # the very best are errors of the clock
    print(f"torch's best rate: {2 * best / 1e9:.0f} GFLOP/s by two threads")
    costs["torch"] = {"product": float(f"{2 / best:.3g}"), "fresh": 3e-10}
    about = f"seconds of a thread; made by {COMMAND} calibrate --seed {seed}"
    COSTS.write_text(json.dumps({"about": about, **costs}, indent=1) + "\n", encoding="utf-8")


def errors(n: Sizes, given: tuple[Tensor, Tensor, Tensor]) -> list[float]:
    """How much larger our error against float64 is than torch's, for the result and both gradients."""

    def all_of(convolve: Callable[..., Tensor], dtype: torch.dtype) -> list[Tensor]:
        images, weight, grad = (tensor.to(dtype).requires_grad_() for tensor in given)
        result = convolve(images, weight, None, n.stride, n.padding)
        return [result.detach(), *torch.autograd.grad(result, (images, weight), grad)]

    exact, torchs, ours = (
        all_of(F.conv2d, torch.float64),
        all_of(F.conv2d, torch.float32),
        all_of(conv2d, torch.float32),
    )
    least = [1e-8 * float(one.norm()) for one in exact]  # torch may be exact, for a kernel of one number
    return [
        float((mine - true).norm()) / max(float((other - true).norm()), floor)
        for mine, other, true, floor in zip(ours, torchs, exact, least, strict=True)
    ]


def check(seconds: float, seed: int) -> None:
    """Whether `conv2d` is never slower than torch, and never less exact, on sizes that the costs were not made from."""
    dice, end, rows = random.Random(f"check {seed}"), time.time() + seconds, []
    while time.time() < end:
        n = random_sizes(dice)
        given = tensors(n)
        images, weight, grad = (given[0].requires_grad_(), given[1].requires_grad_(), given[2])

        def both(
            convolve: Callable[..., Tensor], n: Sizes = n, g: Tensor = grad, x: Tensor = images, w: Tensor = weight
        ) -> object:
            return torch.autograd.grad(convolve(x, w, None, n.stride, n.padding), (x, w), g)

        def forward(convolve: Callable[..., Tensor], n: Sizes = n, x: Tensor = images, w: Tensor = weight) -> object:
            with torch.no_grad():
                return convolve(x, w, None, n.stride, n.padding)

        ways = [rule.choose_way(Pass(name, n), 2) for name in PASSES]
        ratios = []
        for run in (forward, both):
            pair = {"ours": lambda run=run: run(conv2d), "torch": lambda run=run: run(F.conv2d)}
            rounds = rounds_for(pair["torch"])
            taken = least_seconds(pair, rounds)
            if taken["torch"] / taken["ours"] < 0.95:  # is it, or was the machine busy?
                again = least_seconds(pair, 4 * rounds)
                taken = {name: min(taken[name], again[name]) for name in taken}
            ratios.append(taken["torch"] / taken["ours"])
        worst = max(errors(n, given)) if any(ways) else 1.0
        names = ["torch" if way is None else f"{way.name} {way.tile[0]}×{way.tile[1]}" for way in ways]
        rows.append([*n[:2], n.image[0], n.out_channels, n.kernel[0], n.stride[0], n.padding[0], *names,
                     *(f"{ratio:.3f}" for ratio in ratios), f"{worst:.2f}", __version__,
                     f"{COMMAND} check --seed {seed}"])  # fmt: skip
        if min(ratios) < 0.95 or worst > 2:
            print("slower or less exact:", *rows[-1][:13])
    header = ["batch", "channels", "image", "out_channels", "kernel", "stride", "padding", "forward", "images",
              "weight", "forward_ratio", "training_ratio", "worst_error_ratio", "version", "command"]  # fmt: skip
    write_rows("convolution_sweep.csv", header, rows)
    ours = [row for row in rows if any(name != "torch" for name in row[7:10])]
    faster = median(float(row[11]) for row in ours)
    print(f"{len(rows)} sizes, {len(ours)} with a pass of ours, there {faster:.2f} times as fast in training (median)")


def bars() -> None:
    """The layers of the paper."""
    rows: list[list[object]] = []

    def add(what: str, bar: str, value: float, unit: str = "×") -> None:
        rows.append([what, bar, f"{value:.4g}", unit, 2, __version__, f"{COMMAND} bars"])
        print(what, bar, f"{value:.3g}", unit, flush=True)

    def compare(n: Sizes, last: bool, image_gradient: bool, rounds: int) -> float:
        images, weight, grad = tensors(n)
        bias = torch.zeros(n.out_channels, requires_grad=True)
        format_of = torch.channels_last if last else torch.contiguous_format

        def run(convolve: Callable[..., Tensor], x: Tensor, g: Tensor, **options: bool) -> object:
            result = convolve(x, weight, bias, n.stride, n.padding, **options)
            return torch.autograd.grad(result, [weight, bias, *([x] if image_gradient else [])], g)

        weight.requires_grad_()
        mine = images.clone(memory_format=format_of).requires_grad_(image_gradient)
        own_grad = grad.clone(memory_format=format_of)  # as the layers around it give it
        images.requires_grad_(image_gradient)
        ours, torchs = run(conv2d, mine, own_grad, channels_last=last), run(F.conv2d, images, grad)
        for one, other in zip(ours, torchs, strict=True):
            if not torch.allclose(one, other, rtol=1e-3, atol=1e-4 * float(other.abs().max())):
                sys.exit("ours and torch's disagree. No ratios.")
        pair = {
            "ours": lambda: run(conv2d, mine, own_grad, channels_last=last),
            "torch": lambda: run(F.conv2d, images, grad),
        }
        taken = least_seconds(pair, rounds)
        return taken["torch"] / taken["ours"]

    primary = Sizes(128, 256, (20, 20), 256, (9, 9), (2, 2), (0, 0))
    first = Sizes(128, 1, (28, 28), 256, (9, 9), (1, 1), (0, 0))
    add("primary convolution of the paper, forward + backward, B=128", "≥ 4", compare(primary, True, True, 9))
    add("the same, images and gradients in torch's order", "", compare(primary, False, True, 9))
    add("primary convolution, forward + backward, B=32", "≥ 2.2", compare(primary._replace(batch=32), True, True, 15))
    for batch, bar in ((1, "≥ 1"), (128, "")):
        n = primary._replace(batch=batch)
        images, weight, _ = tensors(n)
        with torch.no_grad():
            pair = {
                "ours": lambda x=images, w=weight: conv2d(x, w, None, 2),
                "torch": lambda x=images, w=weight: F.conv2d(x, w, None, 2),
            }
            taken = least_seconds(pair, 200 if batch == 1 else 9)
        add(f"primary convolution, forward, fixed weights, B={batch}", bar, taken["torch"] / taken["ours"])
    add("first convolution, forward + gradient of the weight, B=128", "≥ 3", compare(first, True, False, 15))
    add(
        "first convolution, forward + gradient of the weight, B=32",
        "",
        compare(first._replace(batch=32), False, False, 40),
    )
    worst = errors(primary._replace(batch=32), tensors(primary._replace(batch=32)))
    for name, value in zip(("result", "gradient of images", "gradient of weight"), worst, strict=True):
        add(f"error against float64, part of torch's: {name}", "≤ 2", value)
    beside = [subprocess.Popen([sys.executable, "-c", "while True: pass"])]
    try:
        add("primary convolution, B=128, beside a busy process", "≥ 1", compare(primary, True, True, 5))
    finally:
        for process in beside:
            process.kill()
            process.wait()
    write_rows("convolution.csv", ["what", "bar", "measured", "unit", "threads", "version", "command"], rows)


def compare_random(count: int, seed: int) -> None:
    """Small sizes of every kind, by our kernels wherever they can, against torch in float64."""
    dice, bad = random.Random(seed), 0
    for _ in range(count):
        kernel = (dice.randint(1, 11), dice.randint(1, 11))
        padding = tuple(dice.randint(0, size // 2) for size in kernel)
        image = tuple(dice.randint(max(1, k - 2 * p), 30) for k, p in zip(kernel, padding, strict=True))
        stride = (dice.randint(1, 3), dice.randint(1, 3))
        n = Sizes(dice.randint(1, 4), dice.randint(1, 40), image, dice.randint(1, 40), kernel, stride, padding)
        images, weight, grad = (tensor.requires_grad_() for tensor in tensors(n, dice.randint(0, 1 << 30)))
        with use_backend("cpu"):
            result = conv2d(images, weight, None, stride, padding, channels_last=dice.random() < 0.5)
            found = [result, *torch.autograd.grad(result, (images, weight), grad)]
        exact = [tensor.detach().double().requires_grad_() for tensor in (images, weight)]
        result = F.conv2d(*exact, None, stride, padding)
        expected = [result, *torch.autograd.grad(result, exact, grad.double())]
        off = max(float((one - true).abs().max() / true.abs().max()) for one, true in zip(found, expected, strict=True))
        if not off < 1e-5:
            bad += 1
            print("disagrees:", n, off)
    record("random convolutions against torch in float64", count, bad, "values and both gradients", seed)


def main() -> None:
    """Do what was asked for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", nargs="?", default="bars", choices=["bars", "calibrate", "check", "random"])
    parser.add_argument("--seconds", type=float, default=180)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--count", type=int, default=10_000)
    arguments = parser.parse_args()
    torch.set_num_threads(2)
    if arguments.what == "bars":
        bars()
    elif arguments.what == "random":
        compare_random(arguments.count, arguments.seed)
    else:
        {"calibrate": calibrate, "check": check}[arguments.what](arguments.seconds, arguments.seed)


if __name__ == "__main__":
    main()
