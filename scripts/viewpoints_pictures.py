"""Makes docs/images/viewpoints.png: bodies of the synthetic data set from several sides under several lights.

    python scripts/viewpoints_pictures.py [TARGET]

Two rows for each category, one training and one test instance. Eight columns go around and up, three show other
lights.
"""

from __future__ import annotations

import sys
from pathlib import Path

import torch
from PIL import Image

from torchcaps.data.datasets.small_norb import CATEGORIES
from torchcaps.data.synthetic.rendering import render
from torchcaps.data.synthetic.viewpoints import BACKGROUND, IMAGE_SIZE, INSTANCES, LIGHTS, RADIUS, instance_body

TARGET = Path(__file__).parent.parent / "docs" / "images" / "viewpoints.png"
# Azimuth, elevation and light of each column.
AROUND = ((0, 30, 0), (40, 30, 0), (80, 30, 0), (140, 30, 0), (220, 30, 1), (300, 30, 1), (40, 50, 2), (40, 70, 2))
LIT = ((40, 30, 3), (40, 30, 4), (40, 30, 5))
ZOOM = 2


def row(category: str, instance: int) -> torch.Tensor:
    """One instance in all columns, as in the data set, uint8 ``[40, columns · 40]``."""
    body, albedo = instance_body(category, instance)
    columns = AROUND + LIT
    cameras = torch.tensor([column[:2] for column in columns])
    images = render(body, cameras, LIGHTS, pixels=IMAGE_SIZE, scale=RADIUS, albedo=albedo, background=BACKGROUND)
    return torch.cat([images[number, column[2]] for number, column in enumerate(columns)], 1)


def main() -> None:
    """Render, enlarge, write, say how large it is."""
    target = Path(sys.argv[1]) if len(sys.argv) > 1 else TARGET
    sheet = torch.cat([row(category, INSTANCES[split][0]) for category in CATEGORIES for split in ("train", "test")])
    sheet = sheet.repeat_interleave(ZOOM, 0).repeat_interleave(ZOOM, 1)
    target.parent.mkdir(exist_ok=True)
    Image.fromarray(sheet.numpy()).save(target, optimize=True)
    print(f"{target.name}: {target.stat().st_size / 1e3:.0f} kB")


if __name__ == "__main__":
    main()
