"""Routing by agreement on the smallest scene that shows it: triangles and rectangles, houses and boats.

Every part knows its own pose: where it is and which way up. From that alone it predicts the pose of the whole it
would belong to: "if I am the roof of a house, the house stands there". Two parts that predict the same house agree;
parts of different things do not. Nothing here is learned: the weights are plain geometry.

- A rectangle with a triangle standing on its tip above it. House or boat? Both parts predict the same boat, and two
  different houses. Routing sends them to the boat.
- A house right above a boat. Its wall and the boat's sail, taken together, look just like a house on its head. But
  then nobody would explain the roof and the hull. Routing finds the house and the boat.

After the toy in Aurélien Géron's capsule network lecture, as retold by Samuel Cheng (2018).

Run: python examples/house_and_boat.py
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from torchcaps import Capsules
from torchcaps.layers import CapsuleLinear
from torchcaps.ops import RoutingOutput
from torchcaps.routing import DynamicRouting

Place = tuple[float, float, float]  # right, up, and turned by an angle
UPRIGHT, TIPPED = 0.0, math.pi
WHOLES: dict[str, dict[str, Place]] = {  # where the parts are, seen from the middle of the whole
    "house": {"rectangle": (0.0, -0.5, UPRIGHT), "triangle": (0.0, 0.5, UPRIGHT)},
    "boat": {"rectangle": (0.3, -0.8, UPRIGHT), "triangle": (0.0, 0.7, TIPPED)},  # the sail stands on its tip
    "house on its head": {"rectangle": (0.0, 0.5, UPRIGHT), "triangle": (0.0, -0.5, TIPPED)},
}
WAVES = 3.0 * torch.randn(12, 2, generator=torch.Generator().manual_seed(0))  # directions and lengths in the plane
SIZE = 2 * (len(WAVES) + 1)
WEIGHT = 1.5  # length of a vote; longer ones decide in fewer iterations


def turn(angle: float) -> Tensor:
    """Turns a row vector (cos φ, sin φ) on to (cos(φ + angle), sin(φ + angle))."""
    c, s = math.cos(angle), math.sin(angle)
    return torch.tensor([[c, s], [-s, c]])


def move(right: float, up: float, angle: float) -> Tensor:
    """The matrix that moves an encoded pose: every phase turns by its own amount."""
    phases = (WAVES @ torch.tensor([right, up])).tolist()
    return torch.block_diag(*(turn(phase) for phase in (*phases, angle)))


def pose(right: float, up: float, angle: float) -> Tensor:
    """A pose as a vector of length one.

    The place is given by the phases of a few waves over the plane: so moving is linear, as votes must be, and the
    inner product of two poses is large only if they are close, wherever in the picture that is.
    """
    start = torch.tensor([1.0, 0.0] * (SIZE // 2))
    return start @ move(right, up, angle) / start.norm()


def parts_of(whole: str, right: float, up: float) -> list[tuple[str, Place]]:
    """The parts of a whole that stands there, each with its own place."""
    return [(kind, (right + x, up + y, angle)) for kind, (x, y, angle) in WHOLES[whole].items()]


def build_layer(kinds: list[str], wholes: list[str], iterations: int) -> CapsuleLinear:
    """A capsule layer whose weights are geometry: from where a part is, back to the middle of the whole."""
    layer = CapsuleLinear(len(kinds), SIZE, len(wholes), SIZE, DynamicRouting(iterations))
    with torch.no_grad():
        for i, kind in enumerate(kinds):
            for j, whole in enumerate(wholes):
                x, y, angle = WHOLES[whole][kind]
                layer.weight[i, j] = WEIGHT * move(-x, -y, -angle)
    return layer


@torch.no_grad()
def see(parts: list[tuple[str, Place]], wholes: list[str], iterations: int = 10) -> RoutingOutput:
    """Route the parts of a scene to the wholes they may belong to, keeping every iteration."""
    layer = build_layer([kind for kind, _ in parts], wholes, iterations)
    return layer.route(Capsules.from_pose(torch.stack([pose(*place) for _, place in parts])[None]), trace=True)


def boat() -> list[tuple[str, Place]]:
    """Hull and sail of a boat."""
    return parts_of("boat", right=0.7, up=-0.3)


def house_above_boat() -> list[tuple[str, Place]]:
    """Hull, sail, wall, roof: wall and sail are exactly where a house on its head would have them."""
    return parts_of("boat", right=0.0, up=-1.0) + parts_of("house", right=0.0, up=1.2)


def report(title: str, parts: list[str], wholes: list[str], out: RoutingOutput) -> None:
    """Print presence of the wholes and couplings of the parts, every third iteration."""
    print(f"\n{title}")
    for t in range(0, len(out.trace.pose), 3):
        coupling, activation = out.trace.coupling[t, 0], out.trace.activation[t, 0]
        print(f"  iteration {t + 1}")
        print("    presence  " + "  ".join(f"{a:5.2f} {w}" for w, a in zip(wholes, activation, strict=True)))
        for part, row in zip(parts, coupling, strict=True):
            print(f"    {part:<8}  " + "  ".join(f"{share:5.0%} {w}" for share, w in zip(row, wholes, strict=True)))


def main() -> None:
    """Show both scenes."""
    wholes = ["house", "boat"]
    report("A boat", ["hull", "sail"], wholes, see(boat(), wholes))
    wholes = ["house", "boat", "house on its head"]
    report("A house above a boat", ["hull", "sail", "wall", "roof"], wholes, see(house_above_boat(), wholes))


if __name__ == "__main__":
    main()
