"""A digit on a sheet of paper, found in a picture of it and brought to the size and place of MNIST's."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from numpy.lib.stride_tricks import sliding_window_view
from torch import Tensor

DIGIT_SIZE, DIGIT_BOX = 20, 28
"""LeCun et al. 1998: a digit of MNIST fits into 20×20 pixels and has its centre of mass in the middle of 28×28."""

_INK = 0.2  # of the brightest pixel: what is darker is paper or noise
_CELLS = 64  # along the longer side: the grid on which the ground and the pieces of a drawing are looked for
_FAINTEST, _NOISE = 0.06, 8  # ink is so much darker than paper at least, and so many deviations of the noise
_SHARES = (0.2, 0.35, 0.5, 0.65)  # of the darkest ink: thresholds that are tried
_SPECK = 0.05  # of the largest piece: what is smaller is dirt


def _cut_border(pixels: np.ndarray) -> np.ndarray:
    return np.concatenate([pixels[0], pixels[-1], pixels[:, 0], pixels[:, -1]])


def ground_is_light(pixels: np.ndarray) -> bool:
    """Whether the ground is: by the mean, as a shadow may lie on most of it, or the median, as a table may show."""
    border = _cut_border(pixels)
    return max(float(border.mean()), float(np.median(border))) > 127.5


def place_as_digit(pixels: np.ndarray, size: tuple[int, int]) -> Tensor:
    """A light drawing on dark ground as a digit of MNIST: in 20×20 pixels, its centre of mass in the middle.

    Shapes:
        uint8 ``[h, w]`` → uint8 ``[1, H, W]``.
    """
    from PIL import Image

    digit = torch.zeros(1, *size, dtype=torch.uint8)
    cut = _cut_drawing(pixels.astype(np.float32))
    if not cut.size:
        return digit
    box = min(DIGIT_BOX, *size)  # a model of smaller pictures gets a smaller digit
    scale = DIGIT_SIZE * box / DIGIT_BOX / max(cut.shape)
    height, width = (max(1, round(length * scale)) for length in cut.shape)
    small = np.asarray(Image.fromarray(cut).resize((width, height), Image.Resampling.BILINEAR))
    full = np.percentile(small[small >= small.max() * _INK], 90)  # only now: thin strokes have become faint
    small = (small * (255 / full)).clip(0, 255)
    weights = small.sum()
    top, left = (  # all digits of MNIST have it within half a pixel of pixel 14 of 0 … 27, not of 13.5
        round(whole / 2 - float((small.sum(axis=1 - axis) * np.arange(part)).sum() / weights))
        for axis, (part, whole) in enumerate(zip(small.shape, size, strict=True))
    )
    top, left = min(max(top, 0), size[0] - height), min(max(left, 0), size[1] - width)
    digit[0, top : top + height, left : left + width] = torch.from_numpy(small.astype(np.uint8))
    return digit


def _cut_drawing(levels: np.ndarray) -> np.ndarray:
    """What is drawn in a picture, cut out: 0 is paper, 1 the most ink there could be. Empty for empty paper."""
    from PIL import Image

    longest = max(levels.shape)
    step = -(-longest // (4 * _CELLS))  # the means of so many pixels have less noise, but still show strokes
    per_cell = -(-longest // (step * _CELLS))
    levels = _remove_ground(levels, step * per_cell)
    calm = np.asarray(Image.fromarray(levels).reduce(step))
    noise = _estimate_noise(calm)
    paper = float(np.clip(np.median(calm), 0, max(_FAINTEST / 2, 4 * noise)))  # minima of noise are below the paper
    levels, calm = (levels - paper).clip(0), (calm - paper).clip(0)
    blocks = np.pad(calm, [(0, -length % per_cell) for length in calm.shape])
    rows, columns = (length // per_cell for length in blocks.shape)
    cells = blocks.reshape(rows, per_cell, columns, per_cell).max(axis=(1, 3))
    chosen = _find_digit_cells(cells, max(_FAINTEST, _NOISE * noise))
    if not chosen.any():
        return levels[:0]
    near = _over_windows(chosen, 1, np.max)  # with the soft edges
    for grid, times in ((levels, step * per_cell), (calm, per_cell)):
        height, width = grid.shape  # cut first: a row of 500,000 pixels would be repeated 8,000 times
        grid *= near.repeat(times, axis=0)[:height].repeat(times, axis=1)[:, :width]
    inked = calm > _INK * calm.max()
    along = [np.flatnonzero(inked.any(axis=axis)) * step for axis in (1, 0)]
    return levels[along[0][0] : along[0][-1] + step, along[1][0] : along[1][-1] + step]


def _remove_ground(levels: np.ndarray, cell: int) -> np.ndarray:
    """How much of the light that the ground under a pixel gives back is missing there, 0 … 1, and a little noise."""
    from PIL import Image

    if not ground_is_light(255 - levels):  # someone wants light ground to stay
        return np.asarray((levels - levels.min()) / 255)
    height, width = levels.shape
    ground = Image.fromarray(_estimate_ground(np.asarray(Image.fromarray(levels).reduce(cell))))
    covered = (0, 0, width / cell, height / cell)
    whole = np.asarray(ground.resize((width, height), Image.Resampling.BILINEAR, covered))
    shares: np.ndarray = (levels - whole) / (255 - whole)  # in half the light, ink and paper differ half as much
    return shares


def _estimate_ground(cells: np.ndarray) -> np.ndarray:
    """The paper under a drawing, in uneven light: the picture without what is narrower than two fifths of it."""
    sloped = np.zeros_like(cells)  # taken off before: half of a window at the side, and so of a slope, is outside
    for axis, places in enumerate(np.indices(cells.shape, dtype=np.float32)):
        along = np.moveaxis(cells, axis, 0)
        apart = len(along) // 4
        if apart:
            sloped += np.median(along[apart:] - along[:-apart]) / apart * places  # of paper, as most pairs are
    reach = max(cells.shape) // 5
    opened = _over_windows(_over_windows(cells - sloped, reach, np.min), reach, np.max) + sloped
    lightest = min(float(_cut_border(opened).max()), 254)  # what is light in the middle only is a thick drawing
    return np.asarray(opened.clip(0, lightest))


def _over_windows(cells: np.ndarray, reach: int, function: Callable[..., np.ndarray]) -> np.ndarray:
    for axis in (0, 1):
        padded = np.pad(cells, [(reach * (axis == along),) * 2 for along in (0, 1)], mode="edge")
        cells = function(sliding_window_view(padded, 2 * reach + 1, axis), axis=-1)
    return cells


def _estimate_noise(levels: np.ndarray) -> float:
    """The standard deviation of the noise, from the quarter of neighbours that differ least: they are all paper."""
    differences = np.sort(np.concatenate([np.abs(np.diff(levels, axis=axis)).ravel() for axis in (0, 1)]))
    least = differences[: differences.size // 4]
    return float(least.mean()) / 0.224 if least.size else 0.0  # their mean if the noise is normal and has deviation 1


def _find_digit_cells(cells: np.ndarray, least: float) -> np.ndarray:
    """Where the digit is: at the threshold at which most ink is free of the border, if any is, and without specks.

    A low threshold finds pencil beside a dark table, a high one parts a digit from the lines of the paper.
    """
    darkest = cells.max()
    best, most = cells > max(least, _INK * darkest), 0.0
    for threshold in (least, *(share * darkest for share in _SHARES if share * darkest > least)):
        inked = cells > threshold
        inner = [piece for piece in _find_pieces(inked) if not _cut_border(piece).any()]
        if not any(np.ptp(np.nonzero(piece), axis=1).max() >= max(piece.shape) // 10 for piece in inner):
            continue  # nothing, or specks
        free = np.any(inner, axis=0)
        if (_over_windows(free, 2, np.max) & inked & ~free).any():
            continue  # a part of something that does touch the border
        if (weight := float(cells[free].sum())) > most:
            best, most = free, weight
    pieces = _find_pieces(best)
    weights = [float(cells[piece].sum()) for piece in pieces]
    kept = [piece for piece, weight in zip(pieces, weights, strict=True) if weight >= _SPECK * max(weights)]
    return np.asarray(np.any(kept, axis=0)) if kept else best


def _find_pieces(inked: np.ndarray) -> list[np.ndarray]:
    """The connected parts of a drawing; corners connect too."""
    left, pieces = set(zip(*(places.tolist() for places in np.nonzero(inked)), strict=True)), []
    while left:
        piece, around = np.zeros_like(inked), [left.pop()]
        while around:
            row, column = around.pop()
            piece[row, column] = True
            near = left & {(row + down, column + right) for down in (-1, 0, 1) for right in (-1, 0, 1)}
            left -= near
            around += near
        pieces.append(piece)
    return pieces
