"""The whole training step and inference, beside torch's bare convolutions and the same network in plain torch.

    python -m benchmarks.step

`capsnet`, `capsnet-small`, `capsnet-deep` and `matrix-capsnet-small` on images of 28×28, float32, two threads, all in
one process: forward, loss, backward and Adam. "Plain" is the same network with the same weights as people write it:
torch's convolutions, votes by einsum, a softmax and two products per iteration. "Bare" are the network's convolutions
alone, by torch, forward and backward. Loss and gradients of ours and of plain are compared first; if they disagree,
nothing is reported. Times are the least of rounds that take turns; memory is that of processes of their own.
results/step.csv, and results/step_parts.csv: where the time goes, with torch's convolutions and with ours.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from unittest import mock

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from benchmarks.timing import least_seconds, write_rows
from torchcaps import __version__, create_model
from torchcaps.capsules import Capsules
from torchcaps.losses import CapsuleLoss
from torchcaps.models.capsnet import CapsNet
from torchcaps.models.output import ModelOutput
from torchcaps.ops import squash
from torchcaps.ops.backends import use_backend
from torchcaps.ops.conv import cpu
from torchcaps.ops.conv.convolution import forget_choices

MODELS = ("capsnet", "capsnet-small", "capsnet-deep", "matrix-capsnet-small")
COMMAND = "python -m benchmarks.step"
BARS = {
    ("capsnet", "bare"): "≥ 2.5",
    ("capsnet", "plain"): "≥ 4",
}
HEADER = ["model", "what", "batch", "bar", "measured", "unit", "threads", "version", "command"]


def data(batch: int) -> tuple[Tensor, Tensor]:
    """Images and labels that are the same for all."""
    generator = torch.Generator().manual_seed(1)
    images = torch.rand(batch, 1, 28, 28, generator=generator)
    return images, torch.arange(batch) % 10


def make(name: str) -> tuple[nn.Module, CapsuleLoss]:
    """A network and its loss; the seed is the same for all."""
    torch.manual_seed(0)
    model = create_model(name)
    return model, CapsuleLoss("spread" if name.startswith("matrix") else "margin")


def plain_forward(model: nn.Module, images: Tensor, labels: Tensor | None) -> ModelOutput:
    """The network as it is usually written."""
    from benchmarks.routing import einsum_plain  # and much with it, which would count in the peak of memory

    if not isinstance(model, CapsNet):  # EM: votes stored, torch's own operators
        with use_backend("plain"):
            return model(images, labels)
    features = images
    for layer in model.stem:
        if isinstance(layer, nn.Conv2d):
            features = F.conv2d(features, layer.weight, layer.bias, layer.stride, layer.padding)
        else:
            features = layer(features)
    conv = model.primary.conv
    maps = F.conv2d(features, conv.weight, conv.bias, conv.stride, conv.padding)
    poses = maps.unflatten(1, (model.primary.types, model.primary.dim)).permute(0, 3, 4, 1, 2)
    poses = squash(poses).flatten(1, 3)
    pose = einsum_plain(poses, model.class_capsules.weight)
    scores = pose.norm(dim=-1)
    chosen = F.one_hot(scores.argmax(dim=1) if labels is None else labels, pose.shape[1])
    decoded = model.decoder.layers((pose * chosen[..., None]).flatten(1))
    return ModelOutput(scores, Capsules(pose, scores), decoded.view_as(images))


def train(name: str, batch: int, plain: bool) -> Callable[[], tuple[Tensor, list[Tensor]]]:
    """A training step, which gives its loss and gradients."""
    (model, loss), (images, labels) = make(name), data(batch)
    optimizer = torch.optim.Adam(model.parameters(), fused=True)

    def step() -> tuple[Tensor, list[Tensor]]:
        optimizer.zero_grad()
        with use_backend("plain") if plain and not isinstance(model, CapsNet) else nullcontext():
            output = plain_forward(model, images, labels) if plain else model(images, labels)
            total = loss(output, labels, images).total
            total.backward()
        optimizer.step()
        return total.detach(), [parameter.grad for parameter in model.parameters()]

    return step


def infer(name: str, batch: int, plain: bool) -> Callable[[], object]:
    """A forward pass without gradients."""
    (model, _), (images, _) = make(name), data(batch)
    model.eval()

    def run() -> object:
        with torch.no_grad():
            return plain_forward(model, images, None) if plain else model(images)

    return run


def bare(name: str, batch: int) -> Callable[[], object]:
    """torch's convolutions of a network, forward and backward; not the gradient of the images."""
    model, _ = make(name)
    given: list[tuple[nn.Conv2d, Tensor, Tensor]] = []

    def note(layer: nn.Module, inputs: tuple[Tensor], output: Tensor) -> None:
        assert isinstance(layer, nn.Conv2d)
        first = not given
        given.append((layer, inputs[0].detach().contiguous().requires_grad_(not first), torch.randn_like(output)))

    hooks = [one.register_forward_hook(note) for one in model.modules() if isinstance(one, nn.Conv2d)]
    with use_backend("plain"):
        model(data(batch)[0])
    for hook in hooks:
        hook.remove()

    def run() -> None:
        for layer, images, grad in given:
            result = F.conv2d(images, layer.weight, layer.bias, layer.stride, layer.padding)
            leaves = [layer.weight, layer.bias, *([images] if images.requires_grad else [])]
            torch.autograd.grad(result, leaves, grad)

    return run


def check_agreement(name: str) -> None:
    """Refuse to go on unless both give the same loss and gradients."""
    ours, plain = (train(name, 32, plain)() for plain in (False, True))
    largest = max(float(grad.norm()) for grad in plain[1])
    for one, other in zip((ours[0], *ours[1]), (plain[0], *plain[1]), strict=True):
        # A bias before a batch normalisation has no gradient but rounding.
        error = float((one - other).norm() / other.norm().clamp(min=1e-3 * largest))
        if not error < 1e-3:
            sys.exit(f"{name}: ours and plain disagree by {error:.1e}. No ratios.")


def peak(name: str, plain: bool) -> float:
    """Gigabytes of a process that makes three training steps."""
    words = [sys.executable, "-m", "benchmarks.step", "--peak", name, *(["--plain"] if plain else [])]
    return float(subprocess.check_output(words, text=True))


def measure(name: str) -> list[list[object]]:
    """The rows of a network."""
    rows: list[list[object]] = []

    def add(what: str, batch: int, value: float, unit: str = "×", bar: str = "") -> None:
        rows.append([name, what, batch, bar, f"{value:.4g}", unit, 2, __version__, COMMAND])

    check_agreement(name)
    calls = {"ours": train(name, 128, False), "plain": train(name, 128, True), "bare": bare(name, 128)}
    found = least_seconds(calls, 7)
    for other, what in (("bare", "torch's bare convolutions"), ("plain", "the network in plain torch")):
        add(f"training step against {what}", 128, found[other] / found["ours"], bar=BARS.get((name, other), ""))
    for batch in (1, 128):
        found = least_seconds(
            {"ours": infer(name, batch, False), "plain": infer(name, batch, True)}, 200 if batch == 1 else 10
        )
        add("inference against the network in plain torch", batch, found["plain"] / found["ours"])
    bar = "≤ 1" if name == "capsnet" else ""
    add("peak memory of the process", 128, peak(name, False), "GB", bar)
    add("peak memory of the process, plain torch", 128, peak(name, True), "GB")
    steps = {str(batch): train(name, batch, False) for batch in (16, 32, 64, 128, 256)}
    found = least_seconds(steps, 5)
    for batch in (32, 64, 128, 256):
        add("cost when the batch doubles", batch, found[str(batch)] / found[str(batch // 2)])
    return rows


PARTS = {
    "convolutions": ("convolution", "conv2d"),
    "ReLU": ("relu", "clamp_min", "threshold"),
    "routing": ("routed", "em_moments"),
    "decoder's products": ("addmm", "aten::mm"),
    "Adam": ("adam",),
}


def parts(name: str, torchs: bool) -> dict[str, float]:
    """Milliseconds of the parts of a training step, with torch's convolutions or with ours."""
    forget_choices()
    with mock.patch.object(cpu, "choose_way", return_value=None) if torchs else nullcontext():
        step = train(name, 128, False)
        for _ in range(2):
            step()
        with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
            for _ in range(5):
                step()
    forget_choices()
    found = dict.fromkeys([*PARTS, "everything else"], 0.0)
    for event in profile.key_averages():
        part = next((part for part, names in PARTS.items() if any(one in event.key.lower() for one in names)), None)
        found[part or "everything else"] += event.self_cpu_time_total / 5e3
    return found


def main() -> None:
    """Check, measure, print and write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--peak", choices=MODELS, help="print the peak memory of this process after three steps")
    parser.add_argument("--plain", action="store_true", help="with --peak: of plain torch")
    arguments = parser.parse_args()
    torch.set_num_threads(2)
    if arguments.peak:
        step = train(arguments.peak, 128, arguments.plain)
        for _ in range(3):
            step()
        status = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
        print(float(status["VmHWM"].split()[0]) / 1e6)  # getrusage would tell the peak of the process that started it
        return
    rows = []
    for name in MODELS:
        for row in measure(name):
            print(*row[:6], flush=True)
            rows.append(row)
    write_rows("step.csv", HEADER, rows)
    before, after = (parts("capsnet", torchs) for torchs in (True, False))
    table = [[part, f"{before[part]:.1f}", f"{after[part]:.1f}", __version__, COMMAND] for part in before]
    write_rows("step_parts.csv", ["part", "before_ms", "after_ms", "version", "command"], table)
    for line in table:
        print(*line[:3])


if __name__ == "__main__":
    main()
