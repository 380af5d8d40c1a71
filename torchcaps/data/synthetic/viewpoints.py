"""Viewpoints: simple bodies rendered from many sides, a synthetic data set in the manner of SmallNORB, no download."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from torchcaps.data.dataset import Files
from torchcaps.data.datasets.small_norb import CATEGORIES, FAMILIAR_AZIMUTHS, FAMILIAR_ELEVATIONS, ByViewpoint
from torchcaps.data.images import ImageSet
from torchcaps.data.randomness import random_uniform
from torchcaps.data.registry import register_dataset
from torchcaps.data.synthetic.rendering import Light, Primitive, Vector, box, ellipsoid, fit_body, limb, render

INSTANCES = {"train": (4, 6, 7, 8, 9), "test": (0, 1, 2, 3, 5)}
AZIMUTHS = tuple(range(0, 360, 20))
ELEVATIONS = tuple(range(30, 75, 5))
LIGHTS = (
    Light(azimuth=-50, elevation=35, strength=0.9, ambient=0.25),
    Light(azimuth=50, elevation=35, strength=0.9, ambient=0.25),
    Light(azimuth=0, elevation=80, strength=0.8, ambient=0.3),
    Light(azimuth=-110, elevation=45, strength=1.1, ambient=0.15),
    Light(azimuth=110, elevation=45, strength=1.1, ambient=0.15),
    Light(azimuth=10, elevation=15, strength=0.6, ambient=0.1),
)
IMAGE_SIZE = 40
RADIUS = 15.0
"""Pixels from a body's middle to its farthest point, at most."""
BACKGROUND = 0.72
SEED = 2004
NUMBERS = 40
"""Random numbers for each instance; a body may use fewer."""

Between = Callable[[float, float], float]
"""The next random number of an instance, between two limits."""


@register_dataset("viewpoints")
@dataclass(frozen=True)
class Viewpoints(ByViewpoint):
    """24,300 / 24,300 rendered pictures of five kinds of bodies, 40×40, made on the fly.

    Grey images of animals, humans, airplanes, trucks and cars, rendered when asked for, in a few seconds. Each category
    has ten instances; each is seen from 18 azimuths and 9 elevations under 6 lights. The same machine always gives the
    same images; between machines the last bits of the arithmetic may differ, so a few pixels may differ, nearly all by
    one grey level.

    Args:
        protocol: as in :class:`~torchcaps.data.datasets.small_norb.ByViewpoint`.
    """

    def load(self, split: str, files: Files = Files(), class_names: tuple[str, ...] | None = None) -> ImageSet:
        """See :class:`~torchcaps.data.dataset.ImageDataset`."""
        self.check_split(split)
        azimuths, elevations = _views(self.protocol, familiar=split != "test")
        instances = INSTANCES["train" if split == "train" else "test"]
        images = render_instances(instances, azimuths, elevations)
        labels = torch.arange(len(CATEGORIES)).repeat(len(images) // len(CATEGORIES))
        return ImageSet(images, labels, CATEGORIES)

    def load_info(self, split: str) -> Tensor:
        """How each image was made, int64 ``[N, 4]``, in the order of the protocol "instance".

        The columns are SmallNORB's: instance (0 … 9), elevation (0 … 8: 30°, 35°, … 70°), azimuth (0, 2, … 34: tens of
        degrees) and lighting (0 … 5). The category changes fastest, 0 … 4.

        Args:
            split: "train" or "test".
        """
        Viewpoints().check_split(split)
        elevations, azimuths = torch.arange(len(ELEVATIONS)), torch.tensor(AZIMUTHS) // 10
        info = torch.cartesian_prod(torch.tensor(INSTANCES[split]), elevations, azimuths, torch.arange(len(LIGHTS)))
        return info.repeat_interleave(len(CATEGORIES), 0)


def render_instances(instances: tuple[int, ...], azimuths: tuple[int, ...], elevations: tuple[int, ...]) -> Tensor:
    """Images of some instances of all categories, viewpoints in degrees, under all lights, uint8 ``[N, 1, 40, 40]``.

    The order is by instance, elevation, azimuth, light and category.
    """
    cameras = torch.cartesian_prod(torch.tensor(elevations), torch.tensor(azimuths)).flip(1)
    shape = (len(instances), len(cameras), len(LIGHTS), len(CATEGORIES), IMAGE_SIZE, IMAGE_SIZE)
    images = torch.empty(shape, dtype=torch.uint8)
    for place, instance in enumerate(instances):
        for category, name in enumerate(CATEGORIES):
            body, albedo = instance_body(name, instance)
            images[place, :, :, category] = render(
                body, cameras, LIGHTS, pixels=IMAGE_SIZE, scale=RADIUS, albedo=albedo, background=BACKGROUND
            )
    return images.view(-1, 1, IMAGE_SIZE, IMAGE_SIZE)


def instance_body(category: str, instance: int) -> tuple[list[Primitive], float]:
    """The primitives of one instance, within about 1 of the origin, and its albedo."""
    index = 10 * CATEGORIES.index(category) + instance
    numbers: Iterator[float] = iter(random_uniform(SEED, torch.tensor([index]), NUMBERS)[0].tolist())

    def between(low: float, high: float) -> float:
        return low + (high - low) * next(numbers)

    albedo, size = between(0.55, 1.0), between(0.85, 1.0)  # smaller ones too: size should not tell the category
    return fit_body(list(BODIES[category](between)), size), albedo


def _views(protocol: str, familiar: bool) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Azimuths and elevations, in degrees, of a protocol's familiar or other viewpoints."""
    azimuths, elevations = AZIMUTHS, ELEVATIONS
    if protocol == "azimuth":
        azimuths = tuple(angle for angle in AZIMUTHS if (angle in FAMILIAR_AZIMUTHS) == familiar)
    if protocol == "elevation":
        elevations = tuple(
            angle for index, angle in enumerate(ELEVATIONS) if (index in FAMILIAR_ELEVATIONS) == familiar
        )
    return azimuths, elevations


def _animal(between: Between) -> Iterator[Primitive]:
    """Four legs, a trunk that may be reared, neck, head, snout and, mostly, a tail."""
    length, width, height = between(0.5, 0.75), between(0.16, 0.3), between(0.2, 0.34)
    legs, pitch = between(0.35, 0.85), between(-8, 35)
    rise, reach = _polar(pitch, length * 0.75)
    hip, shoulder = (-reach, 0.0, legs), (reach, 0.0, legs + 2 * rise)
    middle = (0.0, 0.0, legs + rise + height * 0.4)
    yield ellipsoid(middle, (length * 1.1, width, height), pitch)
    up, ahead = _polar(between(15, 75), between(0.25, 0.7))
    turn = between(-0.2, 0.2)
    neck = (shoulder[0] + ahead, turn, shoulder[2] + height * 0.6 + up)
    thick, head = between(0.1, 0.17), between(0.16, 0.24)
    yield limb((shoulder[0] - 0.05, 0.0, shoulder[2] + height * 0.4), neck, thick * 1.2, 0.75)
    yield ellipsoid(neck, (head * 1.2, head * 0.85, head))
    yield limb(neck, (neck[0] + head * between(1.5, 2.8), turn * 1.5, neck[2] - head * 0.7), head * 0.6, 0.6)
    girth, stride = between(0.07, 0.13), between(-0.22, 0.22)
    for (x, _, z), step in ((hip, stride), (shoulder, -stride)):
        for side in (1, -1):
            top = (x, side * width * 0.65, z + height * 0.3)
            yield limb(top, (x + side * step, side * width * 0.75, 0.0), girth * 1.3, 0.65)
    if between(0, 1) < 0.75:
        drop, back = _polar(between(-50, 50), between(0.3, 0.8))
        yield limb(
            (hip[0] - length * 0.25, 0.0, hip[2] + height * 0.4),
            (hip[0] - length * 0.25 - back, 0.0, hip[2] + height * 0.4 + drop),
            0.07,
            0.4,
        )


def _human(between: Between) -> Iterator[Primitive]:
    """Two legs in some stride, a trunk that leans, two arms each in its own direction, a head, and mostly a pack."""
    legs, trunk, width = between(0.7, 1.0), between(0.55, 0.75), between(0.2, 0.32)
    depth, lean = between(0.12, 0.2), between(-5, 32)
    up, ahead = _polar(90 - lean, trunk)
    chest = (ahead, 0.0, legs + up)
    yield Primitive(
        "cylinder",
        (ahead / 2, 0.0, legs + up / 2),
        ((depth, 0.0, -depth * ahead / up), (0.0, width, 0.0), (ahead / 2, 0.0, up / 2)),
        between(1.0, 1.35),
    )
    head = between(0.15, 0.21)
    yield ellipsoid((ahead * 1.15 + 0.03, 0.0, legs + up + head * 1.15), (head, head * 0.85, head * 1.2))
    stride, spread, girth = between(-0.55, 0.55), between(0.02, 0.25), between(0.09, 0.14)
    for side in (1, -1):
        hip: Vector = (0.0, side * width * 0.55, legs + 0.05)
        yield limb(hip, (side * stride, side * (width * 0.55 + spread), 0.0), girth * 1.25, 0.7)
        raised, swing, length = between(-80, 50), between(-0.3, 0.6), between(0.5, 0.65)
        lift, out = _polar(raised, length)
        shoulder = (chest[0], side * width * 1.15, chest[2] - 0.1)
        yield limb(shoulder, (chest[0] + swing, shoulder[1] + side * out * 0.8, shoulder[2] + lift), girth * 0.9, 0.7)
    if between(0, 1) < 0.6:
        bulk = between(0.1, 0.18)
        yield box((ahead * 0.6 - depth - bulk * 0.7, 0.0, legs + up * 0.65), (bulk, width * 0.8, trunk * 0.35), -lean)


def _airplane(between: Between) -> Iterator[Primitive]:
    """A fuselage, two swept wings, a tailplane and a fin, mostly two engines or a cockpit."""
    girth, span, sweep = between(0.11, 0.18), between(0.72, 1.05), between(-0.05, 0.5)
    chord, taper, place = between(0.19, 0.32), between(0.35, 1.0), between(-0.1, 0.3)
    high, dihedral = between(-0.7, 0.9) * girth, between(-0.02, 0.14)
    yield ellipsoid((0.0, 0.0, 0.0), (1.0, girth, girth * between(1.0, 1.25)))
    yield limb((0.1, 0.0, 0.0), (-0.95, 0.0, girth * 0.4), girth * 0.9, 0.45)
    tail, raised = between(0.3, 0.5), between(0.0, 1.0)
    fin, back = between(0.25, 0.45), between(0.05, 0.25)
    for side in (1, -1):
        wing = (-sweep / 2, side * span / 2, dihedral / 2)
        root = (place + wing[0], wing[1], high + wing[2])
        yield Primitive("box", root, ((chord, 0.0, 0.0), (0.0, 0.0, 0.035), wing), taper)
        panel = (-sweep * tail / 2, side * tail / 2, 0.0)
        level = girth * 0.4 + (fin if raised > 0.7 else 0.0)  # some have the tailplane on top of the fin
        yield Primitive(
            "box",
            (-0.85 - back * (raised > 0.7) + panel[0], panel[1], level),
            ((chord * 0.6, 0.0, 0.0), (0.0, 0.0, 0.03), panel),
            0.6,
        )
    yield Primitive(
        "box",
        (-0.85 - back / 2, 0.0, girth * 0.4 + fin / 2),
        ((chord * 0.65, 0.0, 0.0), (0.0, 0.03, 0.0), (-back / 2, 0.0, fin / 2)),
        0.6,
    )
    if between(0, 1) < 0.6:
        bulk, out = between(0.06, 0.1), span * between(0.3, 0.5)
        for side in (1, -1):
            x = place - sweep * out / span
            yield limb((x - 0.1, side * out, high - bulk), (x + chord + 0.1, side * out, high - bulk), bulk, 0.9)
    else:
        yield ellipsoid((0.45, 0.0, girth * 0.9), (0.28, girth * 0.6, girth * 0.7))


def _truck(between: Between) -> Iterator[Primitive]:
    """A cab with or without a bonnet, a load that is a box, a tank or a low bed, and two or three axles."""
    width, wheel = between(0.28, 0.38), between(0.12, 0.17)
    cab, tall, load = between(0.16, 0.25), between(0.3, 0.42), between(0.5, 0.8)
    floor, gap = wheel * 1.3, between(0.0, 0.08)
    yield box((0.0, 0.0, floor + tall), (cab, width, tall), 0.0, between(0.82, 1.0))
    front = cab
    if between(0, 1) < 0.5:
        nose = between(0.1, 0.2)
        yield box((cab + nose, 0.0, floor + tall * 0.5), (nose, width * 0.85, tall * 0.5), 0.0, 0.9)
        front = cab + 2 * nose
    style, bulk = between(0, 1), between(0.34, 0.52)
    middle = -cab - gap - load
    yield box((middle, 0.0, floor + 0.03), (load + gap, width * 0.8, 0.06))
    if style < 0.5:
        yield box((middle, 0.0, floor + 0.06 + bulk), (load, width * between(1.0, 1.15), bulk))
    elif style < 0.75:
        yield limb((middle - load, 0.0, floor + 0.06 + width), (middle + load, 0.0, floor + 0.06 + width), width)
    else:
        yield box((middle, 0.0, floor + 0.06 + bulk * 0.4), (load, width * 1.05, bulk * 0.4), 0.0, between(1.0, 1.15))
    axles = [front - wheel * 1.4, middle - load * between(0.45, 0.7)]
    if between(0, 1) < 0.5:
        axles.append(axles[1] + wheel * 2.2)
    for x in axles:
        yield limb((x, -width * 1.08, wheel), (x, width * 1.08, wheel), wheel)


def _car(between: Between) -> Iterator[Primitive]:
    """A low body, a cabin of some length, height and place on it, two axles, and sometimes a spoiler."""
    length, width, wheel = between(0.75, 0.95), between(0.3, 0.42), between(0.13, 0.18)
    low, high = between(0.12, 0.2), between(0.12, 0.22)
    floor = wheel * 0.9
    top = floor + 2 * low
    yield box((0.0, 0.0, floor + low), (length, width, low), between(-2.5, 2.5), between(0.85, 1.0))
    cabin, place, slant = between(0.3, 0.55), between(-0.3, 0.05), between(-0.15, 0.1)
    yield Primitive(
        "box",
        (place + slant / 2, 0.0, top + high * 0.9),
        ((cabin, 0.0, 0.0), (0.0, width * 0.9, 0.0), (slant, 0.0, high)),
        between(0.55, 0.85),
    )
    yield ellipsoid((length * 0.85, 0.0, floor + low), (0.18 + between(0.0, 0.12), width * 0.9, low * 0.9))
    base = length * between(0.55, 0.7)
    for x in (base, -base):
        yield limb((x, -width * 1.06, wheel), (x, width * 1.06, wheel), wheel)
    if between(0, 1) < 0.4:
        yield box((-length * 0.92, 0.0, top + between(0.06, 0.14)), (0.08, width * 0.95, 0.025))


def _polar(degrees: float, length: float) -> tuple[float, float]:
    """The rise and the reach of a line of this length and angle above the horizon."""
    angle = torch.deg2rad(torch.tensor(degrees, dtype=torch.float64))
    return length * float(angle.sin()), length * float(angle.cos())


BODIES: dict[str, Callable[[Between], Iterator[Primitive]]] = {
    "animal": _animal,
    "human": _human,
    "airplane": _airplane,
    "truck": _truck,
    "car": _car,
}
