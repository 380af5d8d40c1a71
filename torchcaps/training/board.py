"""The log for TensorBoard, which is written by a thread of its own."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from torchcaps.extras import comes_with_an_extra
from torchcaps.training.errors import RunError

with comes_with_an_extra():
    from pytorch_lightning.loggers import TensorBoardLogger


class Board(TensorBoardLogger):
    """Lightning's logger, for which a full disk is an error of the training.

    The thread of tensorboardX would die of it with a traceback, and training would wait for it for ever.
    """

    _failure: OSError | None = None
    _watched: Any = None

    def log_metrics(self, metrics: Mapping[str, float], step: int | None = None) -> None:
        """Write numbers of a step."""
        self._watch()
        if self._failure is not None:
            raise RunError(f"the log in {self.log_dir} cannot be written: {self._failure.strerror}.")
        super().log_metrics(metrics, step)

    def _watch(self) -> None:
        """Keep what goes wrong in the thread, which is to go on."""
        records = getattr(getattr(self.experiment.file_writer, "event_writer", None), "_ev_writer", None)
        if records is None or records is self._watched:
            return
        self._watched = records
        for name in ("write_event", "flush", "close"):
            setattr(records, name, self._guard(getattr(records, name)))

    def _guard(self, write: Callable[..., Any]) -> Callable[..., Any]:
        def guarded(*arguments: Any) -> Any:
            try:
                return write(*arguments)
            except OSError as error:
                self._failure = error
                return None

        return guarded
