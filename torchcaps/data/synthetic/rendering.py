"""A small renderer: bodies made of ellipsoids, boxes and cylinders, seen by a distant camera under distant lights.

The camera is orthographic: all rays of a view are parallel. A primitive is a unit shape under an affine map, so that
boxes may be sheared (a swept wing), and each is convex: a ray is inside it for one interval.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import avg_pool2d, normalize, pad

Vector = tuple[float, float, float]
"""Forward, left, up."""

KINDS = ("ellipsoid", "box", "cylinder")
RAYS_AT_ONCE = 120_000  # few enough that what is computed stays in the processor's cache
FAR = 1e4
SMALL = 1e-9


@dataclass(frozen=True)
class Primitive:
    """A unit ball, a cube of half-size 1 or a cylinder of radius and half-height 1, moved by an affine map.

    Attributes:
        kind: one of ``KINDS``.
        centre: where the unit shape's origin goes.
        axes: where its three unit vectors go, seen from the centre; a cylinder stands along the third.
        taper: how wide box and cylinder are at the end of the third axis, 1 at its beginning; 0 is a pyramid or cone.
    """

    kind: str
    centre: Vector
    axes: tuple[Vector, Vector, Vector]
    taper: float = 1.0


class Light(NamedTuple):
    """A distant light: its azimuth from the camera's and its elevation in degrees, its strength, and ambient light."""

    azimuth: float
    elevation: float
    strength: float
    ambient: float


class Surface(NamedTuple):
    """What rays see: which of them hit, bool ``[V, R]``, and the unit normals where they do, ``[hits, 3]``."""

    hit: Tensor
    normals: Tensor


def ellipsoid(centre: Vector, radii: Vector, pitch: float = 0.0) -> Primitive:
    """An ellipsoid, its nose raised by ``pitch`` degrees."""
    return Primitive("ellipsoid", centre, _pitch(radii, pitch))


def box(centre: Vector, half_sizes: Vector, pitch: float = 0.0, taper: float = 1.0) -> Primitive:
    """A box, its nose raised by ``pitch`` degrees, narrower or wider at its top by ``taper``."""
    return Primitive("box", centre, _pitch(half_sizes, pitch), taper)


def limb(start: Vector, end: Vector, radius: float, taper: float = 1.0) -> Primitive:
    """A round rod between two points, its radius at the end ``taper`` times that at the start."""
    along = torch.tensor(end, dtype=torch.float64) - torch.tensor(start, dtype=torch.float64)
    least = torch.eye(3, dtype=torch.float64)[int(along.abs().argmin())]
    first = torch.linalg.cross(along, least)
    first = radius * first / first.norm()
    second = torch.linalg.cross(along, first) / along.norm()
    middle = torch.tensor(start, dtype=torch.float64) + along / 2
    return Primitive("cylinder", _vector(middle), (_vector(first), _vector(second), _vector(along / 2)), taper)


def fit_body(body: Sequence[Primitive], radius: float) -> list[Primitive]:
    """The body with the middle of its bounding box at the origin and its farthest point ``radius`` away."""
    points = outline(body)
    middle = (points.amin(0) + points.amax(0)) / 2
    scale = radius / (points - middle).norm(dim=1).max()
    return [
        Primitive(
            part.kind,
            _vector(scale * (torch.tensor(part.centre, dtype=torch.float64) - middle)),
            tuple(_vector(scale * axis) for axis in torch.tensor(part.axes, dtype=torch.float64)),  # type: ignore[arg-type]
            part.taper,
        )
        for part in body
    ]


def outline(body: Sequence[Primitive]) -> Tensor:
    """Points on the primitives that enclose them closely, float64 ``[points, 3]``."""
    angles = torch.arange(16, dtype=torch.float64) * math.pi / 8
    circle = torch.stack([angles.cos(), angles.sin()], 1)
    square = torch.tensor([[1.0, 1.0], [1.0, -1.0], [-1.0, 1.0], [-1.0, -1.0]], dtype=torch.float64)
    points = []
    for part in body:
        rim = square if part.kind == "box" else circle
        levels = [(-1.0, 1.0), (1.0, part.taper)]  # height, width
        if part.kind == "ellipsoid":
            levels = [(math.sin(angle), math.cos(angle)) for angle in (step * math.pi / 8 for step in range(-4, 5))]
        unit = torch.cat([pad(width * rim, (0, 1), value=height) for height, width in levels])
        points.append(unit @ torch.tensor(part.axes).double() + torch.tensor(part.centre))
    return torch.cat(points)


def render(
    body: Sequence[Primitive],
    cameras: Tensor,
    lights: Sequence[Light],
    *,
    pixels: int,
    scale: float,
    albedo: float = 1.0,
    background: float = 0.75,
    samples: int = 3,
) -> Tensor:
    """A body from all cameras under all lights, Lambert's shading without cast shadows.

    What is seen depends on the camera alone: it is found once and shaded for each light.

    Args:
        body: its primitives, around the origin.
        cameras: azimuth and elevation in degrees; azimuth 0 sees the front, 90 the left side.
        lights: they turn with the camera's azimuth, not with its elevation, as around a turntable.
        pixels: height and width of the images.
        scale: pixels per unit of length.
        albedo: the share of light that the body sends back.
        background: its brightness, 0 … 1.
        samples: rays per pixel, in each of the two directions.

    Shapes:
        cameras ``[V, 2]`` → uint8 ``[V, L, pixels, pixels]``.
    """
    border = max(0, int(pixels / 2 - 1.05 * scale * outline(body).norm(dim=1).max()))  # no ray of these pixels can hit
    screen = screen_points(pixels - 2 * border, scale, samples)
    parts = []
    for some in torch.split(cameras, max(1, RAYS_AT_ONCE // screen.shape[1])):
        surface = cast(body, camera_frames(some), screen)
        brightness = _shade(surface, _light_directions(some[:, 0], lights), lights, albedo, background)
        fine = samples * (pixels - 2 * border)
        seen = avg_pool2d(brightness.view(len(some), len(lights), fine, fine), samples)
        parts.append((255 * pad(seen, (border,) * 4, value=background)).round().to(torch.uint8))
    return torch.cat(parts)


def screen_points(pixels: int, scale: float, samples: int) -> Tensor:
    """Where rays start on the screen, row by row: right and up from the middle, ``[2, (pixels · samples)²]``."""
    fine = pixels * samples
    places = (torch.arange(fine, dtype=torch.float32) + 0.5 - fine / 2) / (samples * scale)
    up, right = torch.meshgrid(-places, places, indexing="ij")
    return torch.stack([right.flatten(), up.flatten()])


def camera_frames(cameras: Tensor) -> Tensor:
    """Unit vectors right, up and forward of each camera, from azimuth and elevation: ``[V, 2]`` → ``[V, 3, 3]``."""
    azimuth, elevation = torch.deg2rad(cameras.double()).unbind(1)
    zero = torch.zeros_like(azimuth)
    right = torch.stack([-azimuth.sin(), azimuth.cos(), zero], 1)
    towards = _direction(azimuth, elevation)
    return torch.stack([right, torch.linalg.cross(towards, right), -towards], 1).float()


def cast(body: Sequence[Primitive], frames: Tensor, screen: Tensor) -> Surface:
    """Follow all rays to the nearest primitive.

    Shapes:
        frames ``[V, 3, 3]``, screen ``[2, R]`` → hit ``[V, R]``, normals ``[hits, 3]``.
    """
    inverses = torch.linalg.inv(torch.tensor([part.axes for part in body], dtype=torch.float64).mT).float()  # [P, 3, 3]
    centres = torch.tensor([part.centre for part in body], dtype=torch.float32)
    # The rays as each unit shape sees them: where they start is affine in the screen's coordinates.
    turned = torch.einsum("pij,vkj->pvik", inverses, frames)  # the last index: right, up, forward
    offsets = -torch.einsum("pij,pj->pi", inverses, centres)[:, None, :, None]
    nearest = torch.full((len(frames), screen.shape[1]), FAR)
    owner = torch.zeros(nearest.shape, dtype=torch.uint8)
    for number, part in enumerate(body):
        starts = turned[number, :, :, :2] @ screen + offsets[number]
        depth = _depth(part, starts.unbind(1), turned[number, :, :, 2:].unbind(1))
        owner.masked_fill_(depth < nearest, number)
        torch.minimum(nearest, depth, out=nearest)
    hit = nearest < FAR
    view, ray = hit.nonzero(as_tuple=True)
    owners = owner[hit].long()
    right_up_forward = torch.stack([screen[0, ray], screen[1, ray], nearest[hit]], 1)
    local = torch.einsum("nik,nk->ni", turned[owners, view], right_up_forward) + offsets[:, 0, :, 0][owners]
    normals = torch.einsum("ni,nij->nj", _local_normals(body, owners, local), inverses[owners])
    return Surface(hit, normalize(normals, dim=1))


def _depth(part: Primitive, starts: Sequence[Tensor], ways: Sequence[Tensor]) -> Tensor:
    """How far along each ray the primitive begins, ``FAR`` where it is missed: starts ``[V, R]``, ways ``[V, 1]``."""
    (x, y, z), (a, b, c) = starts, ways
    slope, middle = (1 - part.taper) / 2, (1 + part.taper) / 2  # box and cylinder are as wide as middle − slope · z
    if part.kind == "ellipsoid":
        spans = [_roots(a * a + b * b + c * c, a * x + b * y + c * z, x * x + y * y + z * z - 1)]
    elif part.kind == "cylinder":
        spans = [_between(z, c), _in_cone(starts, ways, slope, middle)]
    else:
        spans = [_between(z, c)]
        for place, way in ((x, a), (y, b), (-x, -a), (-y, -b)):
            spans.append(_below(slope * z + place, slope * c + way, middle))
    enter, leave = spans[0]
    for low, high in spans[1:]:
        enter, leave = torch.maximum(enter, low), torch.minimum(leave, high)
    return torch.where(enter < leave, enter, FAR)


def _between(place: Tensor, way: Tensor) -> tuple[Tensor, Tensor]:
    """Where a ray is between −1 and 1: from, to."""
    inverse = _not_zero(way).reciprocal()
    middle, half = -inverse * place, inverse.abs()
    return middle - half, middle + half


def _below(place: Tensor, way: Tensor, limit: float) -> tuple[Tensor, Tensor]:
    """Where a ray is on the inner side of a plane: from, to."""
    way = _not_zero(way)
    crossing = (limit - place) * way.reciprocal()
    leaving = way > 0
    return torch.where(leaving, -math.inf, crossing), torch.where(leaving, crossing, math.inf)


def _in_cone(starts: Sequence[Tensor], ways: Sequence[Tensor], slope: float, middle: float) -> tuple[Tensor, Tensor]:
    (x, y, z), (a, b, c) = starts, ways
    width, widening = middle - slope * z, -slope * c
    square = a * a + b * b - widening * widening
    enter, leave = _roots(square, a * x + b * y - width * widening, x * x + y * y - width * width)
    # A ray steeper than the side meets the cone once, and its mirror image beyond the tip once: it is open at one end.
    steep = square < 0
    leave = torch.where(steep & (widening > 0), math.inf, leave)
    return torch.where(steep & (widening <= 0), -math.inf, enter), leave


def _roots(square: Tensor, half: Tensor, rest: Tensor) -> tuple[Tensor, Tensor]:
    """Both t with square · t² + 2 half · t + rest = 0; without any, infinities that make an empty interval."""
    square = _not_zero(square)  # also below the root: a ray along a cylinder's axis is inside for long
    inverse = square.reciprocal()
    root = (half * half - square * rest).sqrt()  # not a number where there is none
    low, high = (-half - root) * inverse, (root - half) * inverse
    return low.nan_to_num(nan=math.inf), high.nan_to_num(nan=-math.inf)


def _not_zero(number: Tensor) -> Tensor:
    return torch.where(number.abs() < SMALL, SMALL, number)


def _local_normals(body: Sequence[Primitive], owners: Tensor, points: Tensor) -> Tensor:
    """Outward normals, of any length, of unit shapes at points on them: owners ``[N]``, points ``[N, 3]``."""
    kinds = torch.tensor([KINDS.index(part.kind) for part in body])[owners]
    slope = torch.tensor([(1 - part.taper) / 2 for part in body])[owners]
    x, y, z = points.unbind(1)
    zero, width, lengthwise = torch.zeros_like(x), 1 - slope - slope * z, x.abs() > y.abs()
    radius = (x * x + y * y).sqrt().clamp(min=SMALL)
    is_box = kinds == KINDS.index("box")
    beside = torch.where(is_box, torch.maximum(x.abs(), y.abs()), radius) - width
    flat = torch.stack([torch.where(lengthwise, x.sign(), zero), torch.where(lengthwise, zero, y.sign()), slope], 1)
    side = torch.where(is_box[:, None], flat, torch.stack([x / radius, y / radius, slope], 1))
    outer = torch.where((beside > z.abs() - 1)[:, None], side, torch.stack([zero, zero, z.sign()], 1))
    return torch.where((kinds == KINDS.index("ellipsoid"))[:, None], points, outer)


def _shade(surface: Surface, towards: Tensor, lights: Sequence[Light], albedo: float, background: float) -> Tensor:
    """Brightness of all rays, 0 … 1: towards ``[V, L, 3]`` → ``[V, L, R]``."""
    hit, normals = surface
    view = hit.nonzero(as_tuple=True)[0]
    brightness = torch.full((len(hit), len(lights), hit.shape[1]), background)
    for number, light in enumerate(lights):
        facing = (normals * towards[view, number]).sum(1).clamp(min=0)
        brightness[:, number][hit] = (albedo * (light.ambient + light.strength * facing)).clamp(max=1)
    return brightness


def _light_directions(azimuths: Tensor, lights: Sequence[Light]) -> Tensor:
    """Unit vectors to the lights, ``[V]`` → ``[V, L, 3]``."""
    angles = torch.deg2rad(torch.tensor([light[:2] for light in lights], dtype=torch.float64))
    turned = torch.deg2rad(azimuths.double())[:, None] + angles[:, 0]
    return _direction(turned, angles[:, 1].expand_as(turned)).float()


def _direction(azimuth: Tensor, elevation: Tensor) -> Tensor:
    level = elevation.cos()
    return torch.stack([level * azimuth.cos(), level * azimuth.sin(), elevation.sin()], -1)


def _pitch(sizes: Vector, degrees: float) -> tuple[Vector, Vector, Vector]:
    cosine, sine = math.cos(math.radians(degrees)), math.sin(math.radians(degrees))
    length, width, height = sizes
    return (length * cosine, 0.0, length * sine), (0.0, width, 0.0), (-height * sine, 0.0, height * cosine)


def _vector(values: Tensor) -> Vector:
    first, second, third = values.tolist()
    return first, second, third
