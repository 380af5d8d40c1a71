"""From plain data to pages: the templates, and what they are made of. Whatever is not a template is escaped."""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from torchcaps.extras import comes_with_an_extra
from torchcaps.report.pictures import Picture

with comes_with_an_extra():
    from jinja2 import Environment, PackageLoader, StrictUndefined

TEMPLATES = Path(__file__).parent / "templates"


class TableCell(NamedTuple):
    """A cell of a table.

    Attributes:
        text: what it says.
        note: smaller, behind it.
        strength: of its colour, 0 … 1; None for a cell without.
    """

    text: str
    note: str = ""
    strength: float | None = None


class Table(NamedTuple):
    """A table; the first cell of a row is the row's heading.

    Attributes:
        label: what it holds, for those who hear it.
        head: of the columns.
        rows: of cells; texts are cells without more.
    """

    label: str
    head: Sequence[TableCell | str]
    rows: Sequence[Sequence[TableCell | str]]


class Swatch(NamedTuple):
    """A colour and what it stands for."""

    colour: str
    name: str


class Tile(NamedTuple):
    """A number in large type, what it is, and a remark."""

    number: str
    name: str
    remark: str = ""


@dataclass(frozen=True)
class Section:
    """A part of a report.

    Args:
        id: its address within the page.
        title: in plain words.
        template: the file that shows it.
        content: what the template shows, as plain data.
        pictures: those that are also written as files.
        numbers: all that the section shows.
    """

    id: str
    title: str
    template: str
    content: Mapping[str, Any] = field(default_factory=dict)
    pictures: Sequence[Picture] = ()
    numbers: Mapping[str, Any] = field(default_factory=dict)


@functools.cache
def _make_environment() -> Environment:
    loader = PackageLoader("torchcaps.report")
    environment = Environment(
        loader=loader, autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    environment.filters["as_cell"] = lambda value: value if isinstance(value, TableCell) else TableCell(value)
    return environment


def render(template: str, **values: Any) -> str:
    """A template filled in."""
    return _make_environment().get_template(template).render(**values)


def render_section(section: Section) -> str:
    """A section alone, as it is in the page."""
    return render("section.html", section=section)


def light_colours() -> dict[str, str]:
    """The colours of a light page by their names in ``colours.css``."""
    light = (TEMPLATES / "colours.css").read_text(encoding="utf-8").partition("@media")[0]
    return dict(re.findall(r"--([\w-]+): (#\w{6})", light))
