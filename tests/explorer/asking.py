"""What tests say to the explorer and how they read its answers."""

import asyncio
import base64
import io
import json

import numpy as np
import torch
from PIL import Image

from torchcaps.explorer.uploads import read_upload
from torchcaps.training.recipes import recipe_from_file
from torchcaps.training.runs import save_weights, write_recipe
from torchcaps.training.specs import ModelSpec
from torchcaps.training.tasks import ImageTask

SHAPE = (1, 28, 28)  # of MNIST's digits


def packed(picture):
    """Uint8 ``[H, W]`` or ``[H, W, C]`` as a request carries it."""
    return base64.b64encode(np.ascontiguousarray(picture, dtype=np.uint8).tobytes()).decode()


def unpacked(pixels, shape):
    """Int64 ``[C, H, W]`` of an answer; ``shape`` as the model says it."""
    levels = np.frombuffer(base64.b64decode(pixels), dtype=np.uint8).astype(np.int64)
    return levels.reshape(shape["height"], shape["width"], shape["channels"]).transpose(2, 0, 1)


def info(client, model):
    return next(one for one in client.get("/api/models").json()["models"] if one["id"] == model)


def noise(client, model):
    """Some picture that fits a model."""
    shape = info(client, model)["picture"]
    size = shape["height"], shape["width"], shape["channels"]
    return packed(np.random.default_rng(0).integers(0, 256, size))


def ask(client, model, what, **request):
    """The answer; the request has to be right."""
    answer = client.post(f"/api/models/{model}/{what}", json=request)
    assert answer.status_code == 200, answer.text
    return answer.json()


def refusal(answer, *codes):
    """The sentence of a refusal, which it has to be."""
    assert answer.status_code in codes, (answer.status_code, answer.text[:300])
    assert answer.headers["content-type"] == "application/json"
    detail = answer.json()["detail"]
    assert isinstance(detail, str)
    assert 5 < len(detail) < 500
    return detail


def untrained_run(
    folder, name="capsnet-small", shape=(1, 12, 12), classes=("ant", "bee", "cow"), data=None, options=None, **spec
):
    """A run folder as a training leaves it, but of fresh weights: ready in no time."""
    folder.mkdir(parents=True)
    torch.manual_seed(0)
    task = ImageTask(classes, shape, **spec)
    made = ModelSpec(name, task, options or {})
    save_weights(folder / "weights.safetensors", made.build(), made)
    write_recipe(folder, recipe_from_file("quickstart", {"data.name": str(data or "mnist-mini")}))
    return folder


def raw_request(app, path, *, method="GET", headers=(), body=(b"",)):
    """Status, headers and body for a path that no client tidies up; a body in several pieces has no length."""
    pieces, sent = list(body), []

    async def receive():
        piece = pieces.pop(0) if pieces else b""
        return {"type": "http.request", "body": piece, "more_body": bool(pieces)}

    async def send(message):
        sent.append(message)

    scope = {
        "type": "http", "asgi": {"version": "3.0"}, "http_version": "1.1", "method": method, "scheme": "http",
        "path": path, "raw_path": path.encode(), "root_path": "", "query_string": b"", "client": ("127.0.0.1", 5),
        "server": ("127.0.0.1", 80), "headers": [(name.lower().encode(), value.encode()) for name, value in headers],
    }  # fmt: skip
    asyncio.run(app(scope, receive, send))
    got = {name.decode(): value.decode() for name, value in sent[0]["headers"]}
    return sent[0]["status"], got, b"".join(message.get("body", b"") for message in sent[1:]), len(pieces)


def told(body):
    return json.loads(body)["detail"]


def file_of(image, kind="PNG", **options):
    content = io.BytesIO()
    (image if isinstance(image, Image.Image) else Image.fromarray(image)).save(content, kind, **options)
    return content.getvalue()


def read(content, invert="auto", as_digit=True, shape=SHAPE):
    pixels = read_upload(content, shape, invert, as_digit)
    assert tuple(pixels.shape) == shape
    assert str(pixels.dtype) == "torch.uint8"
    return pixels.numpy().astype(np.int64)
