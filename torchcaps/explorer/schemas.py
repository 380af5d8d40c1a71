"""What the page and the server say to each other: the typed JSON interface, from which the OpenAPI schema is made.

Pictures travel as base64 of their pixels, a byte each: rows from the top, columns from the left, channels last. All
pictures of a model have the shape that it says under ``picture``, so the size need not be repeated.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

from torchcaps.analysis.iterations import MOST_ITERATIONS
from torchcaps.errors import InputError

LARGEST_POSE = 64
"""Numbers in a pose that a request may carry; models with longer ones are refused when the explorer starts."""

MOST_KEYS = 10
"""In a request: none needs more than two."""
LARGEST_PICTURE = 4 * 256**2
"""Characters of a picture in base64, RGB with 256×256 pixels."""

Pixels = Annotated[
    str,
    Field(
        pattern=r"^[A-Za-z0-9+/]*={0,2}$",
        max_length=LARGEST_PICTURE,
        description="base64 of one byte per pixel and channel: rows, columns, channels",
        examples=["AAECAwQ="],
    ),
]
Coordinate = Annotated[float, Field(ge=-10, le=10, allow_inf_nan=False)]


class Strict(BaseModel):
    """A request: a key that is not known is a mistake, not ignored."""

    model_config = ConfigDict(extra="forbid")

    @model_validator(mode="before")
    @classmethod
    def few_keys(cls, value: Any) -> Any:
        """Refuse many keys at once: of each that is not known pydantic makes a report, which takes seconds in all."""
        if isinstance(value, dict) and len(value) > MOST_KEYS:
            raise InputError(f"there are {len(value)} keys, more than {MOST_KEYS}")
        return value


class PictureShape(BaseModel):
    """Of the pictures that a model is given."""

    channels: int
    height: int
    width: int


class Card(BaseModel):
    """How a shipped model was trained and what it measured."""

    data: str
    test_error_percent: float
    command: str
    seed: int
    training_minutes: float


class ModelInfo(BaseModel):
    """A model that can be explored."""

    id: str = Field(description="its name in addresses")
    title: str
    architecture: str
    parameters: int
    picture: PictureShape
    drawing: PictureShape = Field(description="of what the decoder draws: the picture after resizing and cropping")
    classes: list[str]
    objects: int = Field(description="how many things a picture shows")
    multi_label: bool = Field(description="a picture may show any number of the classes")
    digits: bool = Field(description="pictures are handwritten digits: light on dark, of 20 pixels, about the middle")
    pose_size: int
    measure: Literal["length", "activation"] = Field(
        description="what says how sure a capsule is: its pose's length, or a number of its own (matrix capsules)"
    )
    routing: str
    iterations: int
    most_iterations: int = Field(description="that a routing can be asked for; as many as iterations if no others")
    decodes: bool = Field(description="whether reconstructions can be asked for")
    samples: int = Field(description="test pictures at hand")
    card: Card | None


class Models(BaseModel):
    """All that can be explored; the first is shown first."""

    models: list[ModelInfo]


class Sample(BaseModel):
    """A test picture."""

    labels: list[int] = Field(description="the classes it shows")
    pixels: Pixels
    parts: list[Pixels] = Field(description="of several objects each alone; else empty")


class Samples(BaseModel):
    """Test pictures of a model."""

    samples: list[Sample]


class LookRequest(Strict):
    """A picture to look at."""

    pixels: Pixels


class RoutingRequest(LookRequest):
    """A picture to route."""

    iterations: int | None = Field(
        None, ge=1, le=MOST_ITERATIONS, description="in place of those that the model was trained with"
    )


class Drawing(BaseModel):
    """What the decoder draws from one class capsule."""

    label: int
    pixels: Pixels


class Look(BaseModel):
    """What a model sees in a picture."""

    lengths: list[float] = Field(description="activation of each class capsule")
    found: list[int] = Field(description="the most active classes, as many as a picture shows, or those above 0.5")
    poses: list[list[float]] = Field(description="of each class capsule")
    drawings: list[Drawing] = Field(
        description="of the classes found, in order, or of all together; empty without a decoder"
    )
    blank: bool = Field(description="the picture is black all over, so there is nothing to find")


class DecodeRequest(Strict):
    """A pose to draw."""

    label: int = Field(ge=0, le=100_000, description="the class capsule that has this pose; all others are zero")
    pose: list[Coordinate] = Field(min_length=1, max_length=LARGEST_POSE)


class RoutingStep(BaseModel):
    """One iteration of routing."""

    lengths: list[float] = Field(description="activation of each class capsule after it")
    entropy: float = Field(description="of a part's couplings, mean over the parts, in nats")
    agreement: float = Field(description="mean cosine of votes and wholes, a vote counting by its length and coupling")
    agreements: list[float] = Field(description="the same for the votes for each class alone")
    coupling: list[list[float]] = Field(description="what each part sends to each class; rows as in parts")


class Part(BaseModel):
    """A capsule below the classes."""

    row: float = Field(description="of the pixel in the middle of what it sees, in the picture the model sees")
    column: float
    type: int
    activation: float


class RoutedPicture(BaseModel):
    """How a picture's parts are routed to the classes."""

    parts: list[Part]
    types: int
    patch: tuple[int, int] = Field(description="height and width of what each part sees, about its place")
    seen: Pixels = Field(description="the picture as the parts see it, resized and cut out, of the drawing's shape")
    uniform_entropy: float = Field(description="of couplings that are all the same: ln of the number of classes")
    steps: list[RoutingStep]


class Uploaded(BaseModel):
    """An uploaded image, brought to the model's shape."""

    pixels: Pixels


class Problem(BaseModel):
    """What is wrong with a request, in a sentence."""

    detail: str
