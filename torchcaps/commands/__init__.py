"""The commands of ``torchcaps``, each in a module of its own."""

from torchcaps.commands.base import Command, CommandError
from torchcaps.commands.compare import COMPARE
from torchcaps.commands.data import DATA
from torchcaps.commands.describe import INFO, MODELS
from torchcaps.commands.evaluate import EVALUATE
from torchcaps.commands.explain import EXPLAIN
from torchcaps.commands.explore import EXPLORE
from torchcaps.commands.predict import PREDICT
from torchcaps.commands.reproduce import REPRODUCE
from torchcaps.commands.train import TRAIN

COMMANDS: dict[str, Command] = {
    "train": TRAIN,
    "evaluate": EVALUATE,
    "predict": PREDICT,
    "explain": EXPLAIN,
    "explore": EXPLORE,
    "compare-models": COMPARE,
    "reproduce": REPRODUCE,
    "data": DATA,
    "models": MODELS,
    "info": INFO,
}

__all__ = ["COMMANDS", "Command", "CommandError"]
