"""What differs between kinds of data, in one place for each: reading, first weights, scores, measures."""

from __future__ import annotations

from torchcaps.data.dataset import Dataset, Kind
from torchcaps.training.tasks.base import Prepared, Task
from torchcaps.training.tasks.images import ImageTask
from torchcaps.training.tasks.text import TextTask

TASKS: dict[Kind, type[Task]] = {"images": ImageTask, "texts": TextTask}


def task_of(dataset: Dataset) -> type[Task]:
    """The task that a data set is for."""
    return TASKS[dataset.kind]


__all__ = ["TASKS", "ImageTask", "Prepared", "Task", "TextTask", "task_of"]
