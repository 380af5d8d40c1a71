"""What can be asked of the explorer's server, as typed JSON."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from queue import Empty, SimpleQueue
from typing import Annotated, Any, TypeVar

from fastapi import APIRouter, Depends, HTTPException, Path, Request

from torchcaps.explorer.limits import Shares, find_client
from torchcaps.explorer.schemas import (
    DecodeRequest,
    Drawing,
    Look,
    LookRequest,
    Models,
    Problem,
    RoutedPicture,
    RoutingRequest,
    Samples,
    Uploaded,
)  # fmt: skip
from torchcaps.explorer.subjects import Subject, to_base64
from torchcaps.explorer.uploads import Invert, read_upload

T = TypeVar("T")

MOST_WAITING, MOST_UPLOADS, MOST_UPLOADS_EACH = 500, 32, 8
"""Requests that wait for a model, for their image to be decoded, the same of one client; more are to come back."""

PROBLEMS: dict[int | str, dict[str, Any]] = {
    code: {"model": Problem, "description": text}
    for code, text in {
        400: "The request cannot be read",
        403: "A page of another server has sent it",
        404: "There is no such model",
        408: "The request was not complete in time",
        413: "More was sent than is allowed",
        421: "The server does not answer to this name",
        422: "The request does not fit the model",
        429: "Too many requests are waiting",
    }.items()
}
IMAGE_BODY = {
    "requestBody": {
        "required": True,
        "description": "a PNG, JPEG, GIF, WebP or BMP file",
        "content": {"application/octet-stream": {"schema": {"type": "string", "format": "binary"}}},
    }
}


class Pool:
    """A few threads that do the work, so that the server always listens, and a queue that does not grow for ever.

    Nothing waits for these threads when the process ends; for those of ``concurrent.futures`` Python does.

    Args:
        threads: that work at the same time.
        most: pieces of work that are begun or wait; more are refused.
        each: the same for one client.
    """

    def __init__(self, threads: int, most: int, each: int | None = None) -> None:
        self._jobs: SimpleQueue[tuple[Future[Any], Callable[..., Any], tuple[Any, ...]] | None] = SimpleQueue()
        self._threads, self._started = threads, False
        self._most, self._waiting = most, 0
        self._shares = Shares(most, each or most)

    async def __call__(self, work: Callable[..., T], *arguments: Any, client: str = "") -> T:
        """The result of ``work(*arguments)``."""
        if self._waiting >= self._most or not self._shares.take(client):
            raise HTTPException(429, "Too many requests are waiting; try again in a second.")
        self._waiting += 1
        try:
            self._start()
            job: Future[T] = Future()
            self._jobs.put((job, work, arguments))
            return await asyncio.wrap_future(job)
        finally:
            self._waiting -= 1
            self._shares.give_back(client)

    def _start(self) -> None:
        if not self._started:
            self._started = True
            for _ in range(self._threads):
                threading.Thread(target=self._work, name="explorer", daemon=True).start()

    def _work(self) -> None:
        while (job := self._jobs.get()) is not None:
            future, work, arguments = job
            if not future.set_running_or_notify_cancel():
                continue
            try:
                future.set_result(work(*arguments))
            except BaseException as error:  # all of them are for whoever waits
                future.set_exception(error)
            del job, future, arguments  # an image need not stay until the next one comes

    def close(self) -> None:
        """End the threads when they have done what they are at."""
        with suppress(Empty):
            while (job := self._jobs.get_nowait()) is not None:
                job[0].cancel()
        for _ in range(self._threads):
            self._jobs.put(None)


class Workers:
    """Who works: models are called one after the other; images are decoded two at a time, as large ones take memory."""

    def __init__(self) -> None:
        self.models, self.uploads = Pool(1, MOST_WAITING), Pool(2, MOST_UPLOADS, MOST_UPLOADS_EACH)

    def close(self) -> None:
        """End all threads."""
        self.models.close()
        self.uploads.close()


# Both are coroutines because FastAPI takes plain functions to a thread, which costs more than they do.
async def _choose_subject(
    request: Request, model: Annotated[str, Path(max_length=100, description="a model's id")]
) -> Subject:
    subjects: dict[str, Subject] = request.app.state.subjects
    if model not in subjects:
        raise HTTPException(404, f"There is no model {model!r}; there are {', '.join(subjects)}.")
    return subjects[model]


async def _find_workers(request: Request) -> Workers:
    workers: Workers = request.app.state.workers
    return workers


Chosen = Annotated[Subject, Depends(_choose_subject)]
Working = Annotated[Workers, Depends(_find_workers)]
interface = APIRouter(prefix="/api/models", responses=PROBLEMS)


@interface.get("")
async def models(request: Request) -> Models:
    """All models that can be explored."""
    return Models(models=[subject.info for subject in request.app.state.subjects.values()])


@interface.get("/{model}/samples")
async def samples(subject: Chosen) -> Samples:
    """Test pictures of a model."""
    return Samples(samples=list(subject.samples))


@interface.post("/{model}/look")
async def look(subject: Chosen, workers: Working, request: LookRequest) -> Look:
    """What a model sees in a picture: lengths and poses of the class capsules, and reconstructions."""
    return await workers.models(subject.look, request.pixels)


@interface.post("/{model}/decode")
async def decode(subject: Chosen, workers: Working, request: DecodeRequest) -> Drawing:
    """What the decoder draws from a pose."""
    return await workers.models(subject.decode, request.label, request.pose)


@interface.post("/{model}/routing")
async def routing(subject: Chosen, workers: Working, request: RoutingRequest) -> RoutedPicture:
    """How a picture's parts are routed to the classes, iteration by iteration, also for more than in training."""
    return await workers.models(subject.routing, request.pixels, request.iterations)


@interface.post("/{model}/upload", openapi_extra=IMAGE_BODY)
async def upload(
    subject: Chosen, workers: Working, request: Request, invert: Invert = "auto", centre: bool = True
) -> Uploaded:
    """An image file, brought to the model's shape; ``centre`` makes a digit of it for models of digits."""
    content, as_digit = await request.body(), centre and subject.digits
    wanted = subject.task.image_shape, invert, as_digit, subject.task.fit
    pixels = await workers.uploads(read_upload, content, *wanted, client=find_client(request.scope))
    return Uploaded(pixels=to_base64(pixels))
