"""What models, losses and Lightning have against a recipe, said with the recipe's keys."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import torch

from torchcaps.errors import InputError, InputTypeError
from torchcaps.training.errors import RunError
from torchcaps.training.recipe import Recipe


def name_key(error: Exception, key: str) -> InputError | InputTypeError:
    """The same error with the key of the recipe that it is about."""
    message = re.sub(r"CapsuleLoss\('([\w-]+)'\)", r"loss.kind \1", str(error))
    return InputTypeError(message, key) if isinstance(error, TypeError) else InputError(message, key)


def find_named(message: str, options: Mapping[str, Any]) -> str | None:
    """The option of a model that a message is about."""
    return next((name for name in options if re.search(rf"\b{re.escape(name)}\b", message)), None)


def explain_trainer(error: Exception, recipe: Recipe) -> RunError:
    """What Lightning has against a machine or a recipe, said in a sentence."""
    reason = str(error).split("\n")[0]
    if recipe.training.accelerator == "gpu" and not torch.cuda.is_available():
        return RunError(
            "training.accelerator is gpu, and torch finds none here. Leave it out, or say cpu.", "training.accelerator"
        )
    return RunError(f"the training cannot be set up: {reason}")
