"""The explorer's server: a page, and a typed JSON interface to the models behind it."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from importlib.resources import files

from fastapi import FastAPI, HTTPException, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, Response

from torchcaps.data.pictures import UnreadableError
from torchcaps.explorer.gallery import load_subjects
from torchcaps.explorer.interface import Workers, interface
from torchcaps.explorer.limits import Guard
from torchcaps.explorer.subjects import RequestError, Subject
from torchcaps.version import __version__

TYPES = {".html": "text/html", ".css": "text/css", ".js": "text/javascript", ".svg": "image/svg+xml"}


def create_app(
    runs: Sequence[str | os.PathLike[str]] = (),
    *,
    subjects: Sequence[Subject] = (),
    data_dir: str | None = None,
    pretrained: bool = True,
    hosts: Sequence[str] | None = None,
) -> FastAPI:
    """The explorer as an ASGI app, to be served, or mounted in another one under any path.

    Args:
        runs: run folders or weights files of models to explore, shown before the shipped ones.
        subjects: other models, one's own among them, made by :func:`~torchcaps.explorer.make_subject`; shown first.
        data_dir: folder with the data sets whose test images are offered.
        pretrained: offer the shipped models, too.
        hosts: names that the server answers to, such as ``("localhost", "127.0.0.1")``; None for all. It always
            answers to the address that it is reached at.
    """
    shown = {subject.id: subject for subject in load_subjects(runs, data_dir, pretrained, subjects)}

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        app.state.workers = Workers()  # a server may start it again after it was stopped
        yield
        app.state.workers.close()

    # The documentation pages of FastAPI load scripts from elsewhere; the schema itself is at /openapi.json.
    app = FastAPI(
        title="torchcaps explorer", version=__version__, docs_url=None, redoc_url=None, lifespan=lifespan,
        redirect_slashes=False,
    )  # fmt: skip
    app.state.subjects, app.state.workers = shown, Workers()  # of a mounted app nobody calls the lifespan
    app.add_middleware(Guard, hosts=hosts)
    app.include_router(interface)
    _add_errors(app)
    _add_page(app)
    return app


def _add_errors(app: FastAPI) -> None:
    """Every refusal is a sentence under ``detail``."""

    @app.exception_handler(RequestError)
    async def unfit(_: Request, error: Exception) -> Response:
        return JSONResponse({"detail": str(error)}, 422)

    @app.exception_handler(UnreadableError)
    async def unreadable(_: Request, error: Exception) -> Response:
        return JSONResponse({"detail": f"This cannot be read as an image: {error}. Give a PNG or JPEG file."}, 422)

    @app.exception_handler(RequestValidationError)
    async def invalid(_: Request, error: Exception) -> Response:
        assert isinstance(error, RequestValidationError)
        # The values themselves are left out: NaN, which is not JSON, may be among them.
        problems = "; ".join(f"{'.'.join(map(str, one['loc']))[:60]}: {one['msg'][:100]}" for one in error.errors()[:3])
        return JSONResponse({"detail": f"The request does not fit: {problems}."}, 422)


def _add_page(app: FastAPI) -> None:
    """The files of the page, read once: no path in a request ever reaches the file system."""
    contents = {
        file.name: (file.read_bytes(), TYPES[os.path.splitext(file.name)[1]])
        for file in (files("torchcaps.explorer") / "page").iterdir()
        if os.path.splitext(file.name)[1] in TYPES
    }

    @app.api_route("/", methods=["GET", "HEAD"], include_in_schema=False)
    async def index() -> Response:
        return await page_file("index.html")

    @app.api_route("/{name}", methods=["GET", "HEAD"], include_in_schema=False)
    async def page_file(name: str) -> Response:
        if name not in contents:
            raise HTTPException(404, "There is nothing here.")
        content, kind = contents[name]
        return Response(content, media_type=kind)
