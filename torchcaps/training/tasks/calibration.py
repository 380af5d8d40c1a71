"""How far the confidence of answers can be trusted: the expected calibration error, and the bins that it comes from."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

BINS = 15
"""Of equal width from 0 to 1, as is usual since Guo et al. 2017, arXiv 1706.04599."""
ALMOST_ONE = 1 - 2**-24
"""The largest float32 below 1: torchmetrics gives a confidence of exactly 1 a bin of its own."""


def measure_calibration(scores: Tensor, labels: Tensor) -> dict[str, Any]:
    """Whether answers with confidence c are right in a share c of all cases.

    ::

        ECE = Σ_b n_b / n · |accuracy_b − confidence_b|

    over :data:`BINS` bins of the confidence. Of items with one label, the confidence is the largest score, and an
    answer is right if that is the label's. Of flags every pair of item and class is a case, the confidence is the
    score of the class, and "right" means that the item has it.

    The scores of capsules are their lengths, taken as they are. They are no probabilities: the margin loss pulls the
    length of the right class to 0.9 and all others to 0.1, however sure the case is, and they need not add up to 1.
    They are not divided by their sum, because the length is what is shown beside every answer and what people take
    for a chance; and because a perfect answer among ten classes would then have the confidence 0.9 / (0.9 + 9 · 0.1)
    = 0.5. So of capsules the error says by how much the shown lengths mislead whoever reads them as chances.

    Returns:
        ``calibration_error``, and ``reliability``: of each bin its limits ``low`` and ``high``, how many cases it has
        (``count``), and their mean ``confidence`` and ``accuracy``, None in an empty one.

    Shapes:
        scores ``[N, K]`` from 0 to 1; labels int64 ``[N]`` or flags bool ``[N, K]``.
    """
    from torchmetrics.functional.classification import binary_calibration_error

    if labels.dtype == torch.bool:
        confidence, right = scores.flatten(), labels.flatten()
    else:
        confidence, answer = scores.max(dim=1)
        right = answer == labels
    confidence = confidence.float().clamp(0, ALMOST_ONE)
    # Of single labels this is multiclass_calibration_error, which looks for the answer itself and takes scores beyond
    # 0 … 1 for logits.
    error = float(binary_calibration_error(confidence, right.int(), n_bins=BINS, norm="l1"))
    return {"calibration_error": error, "reliability": _fill_bins(confidence, right)}


def _fill_bins(confidence: Tensor, right: Tensor) -> list[dict[str, Any]]:
    limits = torch.linspace(0, 1, BINS + 1)
    bins = torch.bucketize(confidence.cpu(), limits, right=True) - 1
    columns = torch.stack([torch.ones_like(confidence), confidence, right.float()], dim=1).double().cpu()
    sums = torch.zeros(BINS, 3, dtype=torch.float64).index_add_(0, bins, columns)
    rows = []
    for number, (count, confidence_sum, right_sum) in enumerate(sums.tolist()):
        means = (confidence_sum / count, right_sum / count) if count else (None, None)
        limited = {"low": number / BINS, "high": (number + 1) / BINS, "count": int(count)}
        rows.append(limited | dict(zip(("confidence", "accuracy"), means, strict=True)))
    return rows
