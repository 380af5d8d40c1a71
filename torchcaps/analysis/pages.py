"""Pieces of a page: sections, tables, figures, and the style that they share. No script, nothing from elsewhere."""

from __future__ import annotations

import html
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from torchcaps.analysis.pictures import Picture

text = html.escape
"""Any text as HTML that shows it."""


class Section(NamedTuple):
    """A part of a report.

    Attributes:
        id: its address within the page.
        title: in plain words.
        body: HTML, closed in itself.
        pictures: those that are also written as files.
        numbers: all that the section shows.
    """

    id: str
    title: str
    body: str
    pictures: Sequence[Picture] = ()
    numbers: Mapping[str, Any] = {}


def page(title: str, head: str, sections: Sequence[Section], foot: str = "") -> str:
    """A complete page: the head, a table of contents beside the sections, the foot.

    Args:
        title: as plain text.
        head: HTML above the sections; it holds the only ``h1``.
        sections: in their order.
        foot: HTML below them.
    """
    links = "".join(f'<li><a href="#{section.id}">{text(section.title)}</a></li>' for section in sections)
    parts = "\n".join(
        f'<section id="{section.id}"><h2>{text(section.title)}</h2>\n{section.body}\n</section>' for section in sections
    )
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{text(title)}</title>
<style>{STYLE}</style>
</head>
<body>
<header>{head}</header>
<div class="columns">
<nav aria-label="Contents"><ol>{links}</ol></nav>
<main>
{parts}
</main>
</div>
<footer>{foot}</footer>
</body>
</html>
"""


def image(picture: Picture, scale: float = 1, kind: str = "pixels") -> str:
    """A picture drawn with crisp pixels, so many times its size, never wider than its place."""
    return (
        f'<img class="{kind}" src="{picture.uri}" alt="{text(picture.alt)}" width="{picture.width}" '
        f'height="{picture.height}" style="--w:{picture.width * scale:g}px">'
    )


def figure(content: str, caption: str = "", kind: str = "") -> str:
    """Something shown, with HTML that says what it is."""
    said = f"<figcaption>{caption}</figcaption>" if caption else ""
    return f'<figure class="{kind}">{content}{said}</figure>' if kind else f"<figure>{content}{said}</figure>"


def paragraph(content: str, kind: str = "") -> str:
    """HTML as a paragraph."""
    return f'<p class="{kind}">{content}</p>' if kind else f"<p>{content}</p>"


def table(head: Sequence[str], rows: Iterable[Sequence[str]], label: str) -> str:
    """A table that scrolls within its own box.

    Args:
        head: HTML, none of it empty.
        rows: of cells as HTML, the first is the row's heading. A cell may begin with an opening ``<td …>`` of its own,
            to be coloured.
        label: what the table holds, for those who hear it; plain text.
    """
    top = "".join(f'<th scope="col">{cell}</th>' for cell in head)
    body = ""
    for heading, *cells in rows:
        inner = "".join(cell if cell.startswith("<td") else f"<td>{cell}</td>" for cell in cells)
        body += f'<tr><th scope="row">{heading}</th>{inner}</tr>'
    said = text(label)
    return (
        f'<div class="wide" tabindex="0" role="region" aria-label="{said}"><table aria-label="{said}">'
        f"<thead><tr>{top}</tr></thead><tbody>{body}</tbody></table></div>"
    )


def heat_cell(value: float, strength: float, shown: str) -> str:
    """A table cell whose colour says how strong it is: orange above zero, blue below.

    Args:
        value: only its sign matters here.
        strength: 0 … 1.
        shown: HTML.
    """
    side = "plus" if value >= 0 else "minus"
    return f'<td class="heat {side}" style="--s:{min(1.0, max(0.0, strength)):.0%}">{shown}</td>'


def facts(pairs: Mapping[str, str]) -> str:
    """Names and values, as a description list; values are HTML."""
    inner = "".join(f"<div><dt>{text(name)}</dt><dd>{value}</dd></div>" for name, value in pairs.items())
    return f'<dl class="facts">{inner}</dl>'


def tiles(values: Sequence[tuple[str, str, str]]) -> str:
    """A few numbers in large type: the number, what it is, and a remark, all HTML."""
    inner = "".join(
        f"<div><strong>{number}</strong><span>{name}</span><small>{remark}</small></div>"
        for number, name, remark in values
    )
    return f'<div class="tiles">{inner}</div>'


def details(summary: str, content: str, is_open: bool = False) -> str:
    """Something that can be folded; both are HTML."""
    return f"<details{' open' if is_open else ''}><summary>{summary}</summary>{content}</details>"


def swatch(colour: str, name: str) -> str:
    """A colour and what it stands for; the name is plain text."""
    return f'<span class="swatch"><i style="background:{colour}"></i>{text(name)}</span>'


def percent(share: float, digits: int = 1) -> str:
    """A share as text, such as 97.2 %."""
    return f"{100 * share:.{digits}f}\u202f%"


def number(value: float | None, digits: int = 3) -> str:
    """A number with a real minus sign; a dash for one that is missing or no number."""
    if value is None or value != value:
        return "–"
    if abs(value) >= 1e5:
        return f"{value:.1e}".replace("-", "−")
    return f"{round(value, digits) + 0.0:.{digits}f}".replace("-", "−")  # + 0.0: there is no minus zero


def significant(value: float, digits: int = 3) -> str:
    """As :func:`number`, but what would be shown as hardly more than zero has two digits that count."""
    if value == value and 0 < abs(value) < 10 ** (1 - digits):
        return f"{value:.1e}".replace("-", "−")
    return number(value, digits)


def counted(count: int, noun: str) -> str:
    """A number of things: 1 image, 2,000 images."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def enumeration(names: Sequence[str], last: str = "and") -> str:
    """Names in a sentence: one, two and three."""
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} {last} {names[-1]}"


WORDS_STYLE = """
.word { padding: .15em .3em; border-radius: .3em; -webkit-box-decoration-break: clone; box-decoration-break: clone; }
.word[data-side=for] { background: color-mix(in srgb, var(--for) var(--s), transparent); }
.word[data-side=against] { background: color-mix(in srgb, var(--against) var(--s), transparent); }
.key .word { color: var(--ink); }
article { border-top: 1px solid var(--line); padding: 1.1rem 0; }
article p { font-size: 1.1rem; line-height: 2; margin: 0 0 .6rem; overflow-wrap: anywhere; }
article :is(h2, h4, h5) { font-size: 1.05rem; margin: 0 0 .4rem; }
article table { font-size: .85rem; border-collapse: collapse; }
article caption { text-align: left; white-space: nowrap; }
article td { padding: .1rem 1rem .1rem 0; border: 0; text-align: left; }
article td:last-child { font-variant-numeric: tabular-nums; text-align: right; }
"""

COLOURS = """
:root { color-scheme: light dark; --paper: #ffffff; --card: #f6f8fa; --ink: #1f2328; --soft: #59636e; --line: #d8dee4;
  --link: #0550ae; --orange: #bc5a00; --blue: #0969da; --green: #1a7f37; --heat-plus: #f0883e; --heat-minus: #54a0ff;
  --grid: #d8dee4; --for: #2da44e; --against: #e8655e; }
@media (prefers-color-scheme: dark) { :root { --paper: #0d1117; --card: #161b22; --ink: #e6edf3; --soft: #9198a1;
  --line: #30363d; --link: #79c0ff; --orange: #f0883e; --blue: #58a6ff; --green: #56d364; --heat-plus: #bd561d;
  --heat-minus: #1f6feb; --grid: #30363d; --for: #1f7a31; --against: #b62324; } }
body { margin: 0; background: var(--paper); color: var(--ink); font: 1rem/1.6 system-ui, sans-serif; }
small, .key, caption { color: var(--soft); }
"""

STYLE = (
    COLOURS
    + """
html { scroll-behavior: smooth; scroll-padding-top: 1rem; }
@media (prefers-reduced-motion: reduce) { html { scroll-behavior: auto; } }
* { box-sizing: border-box; }
a { color: var(--link); text-decoration: none; } a:hover { text-decoration: underline; }
code { font: .88em/1.5 ui-monospace, monospace; overflow-wrap: anywhere; } code span { white-space: nowrap; }
header, .columns, footer { max-width: 78rem; margin: 0 auto; padding: 0 1.25rem; }
header { padding-top: 2.5rem; } footer { padding-bottom: 3rem; color: var(--soft); font-size: .85rem; }
h1 { font-size: clamp(1.6rem, 4vw, 2.3rem); line-height: 1.2; letter-spacing: -.02em; margin: 0 0 .4rem; }
h2 { font-size: 1.45rem; line-height: 1.3; letter-spacing: -.01em; margin: 0 0 .6rem; }
h3 { font-size: 1.08rem; margin: 2.2rem 0 .4rem; }
p { margin: 0 0 .9rem; max-width: 46rem; text-wrap: pretty; } .lead { color: var(--soft); font-size: 1.05rem; }
.says { border-left: 3px solid var(--orange); padding-left: .8rem; }
section { padding: 2.6rem 0 1.2rem; border-top: 1px solid var(--line); } main > section:first-child { border-top: 0; }
nav { font-size: .9rem; } nav ol { list-style: none; margin: 1.4rem 0 0; padding: 0; display: flex; flex-wrap: wrap;
  gap: .2rem 1rem; } nav a { color: var(--soft); display: inline-block; padding: .15rem 0; }
nav a:hover { color: var(--ink); }
@media (min-width: 64rem) { .columns { display: grid; grid-template-columns: 11rem minmax(0, 1fr); gap: 3rem; }
  nav ol { position: sticky; top: 2rem; display: block; margin-top: 2.9rem; border-left: 2px solid var(--line);
    padding-left: .9rem; } }
.tiles { display: grid; grid-template-columns: repeat(auto-fit, minmax(9.5rem, 1fr)); gap: .8rem; margin: 1.6rem 0; }
.tiles div { background: var(--card); border: 1px solid var(--line); border-radius: .7rem; padding: .8rem 1rem; }
.tiles strong { display: block; font-size: 1.55rem; line-height: 1.25; font-variant-numeric: tabular-nums; }
.tiles span { display: block; line-height: 1.35; } .tiles small { line-height: 1.3; display: block; margin-top: .2rem; }
.facts { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 18rem), 1fr)); gap: .5rem 2rem;
  margin: 0 0 .5rem; font-size: .92rem; } .facts div { border-top: 1px solid var(--line); padding-top: .35rem; }
.facts dt { color: var(--soft); font-size: .82rem; } .facts dd { margin: 0; overflow-wrap: anywhere; }
img { display: block; height: auto; max-width: 100%; } img.pixels { width: var(--w); image-rendering: pixelated; }
figure { margin: 0; } figcaption { font-size: .85rem; color: var(--soft); line-height: 1.4; margin-top: .35rem; }
:is(h1, h3, figcaption, summary, .panels, .swatch, .says) { overflow-wrap: anywhere; }
.cases { display: flex; flex-wrap: wrap; gap: 1.3rem 1.6rem; margin: .8rem 0 1.2rem; }
.cases figcaption b { color: var(--ink); font-weight: 600; } .panels { display: grid; text-align: center; gap: 0;
  grid-auto-flow: column; grid-auto-columns: minmax(0, 1fr); font-size: .74rem; color: var(--soft); line-height: 1.3; }
@media (max-width: 34rem) { .cases { display: grid; gap: 1.1rem;
  grid-template-columns: repeat(auto-fill, minmax(9rem, 1fr)); } }
.wide { overflow-x: auto; margin: .8rem 0 1.4rem; max-width: 100%; }
table { border-collapse: collapse; font-size: .88rem; } caption { text-align: left; padding-bottom: .4rem; }
th, td { padding: .3rem .65rem; border-bottom: 1px solid var(--line); text-align: right; white-space: nowrap;
  font-variant-numeric: tabular-nums; font-weight: 400; } thead th { color: var(--soft); vertical-align: bottom; }
th:first-child { text-align: left; padding-left: 0; } .left { text-align: left; white-space: normal; }
.heat { border: 2px solid var(--paper); border-radius: .4rem; text-align: center; }
.heat.plus { background: color-mix(in srgb, var(--heat-plus) var(--s), transparent); }
.heat.minus { background: color-mix(in srgb, var(--heat-minus) var(--s), transparent); }
details { border: 1px solid var(--line); border-radius: .7rem; margin: .6rem 0; background: var(--card); }
summary { cursor: pointer; padding: .6rem 1rem; font-weight: 600; } details > :not(summary) { margin: 0 1rem 1rem; }
summary small { font-weight: 400; }
.strips { display: grid; gap: .45rem 1.1rem; align-items: center; grid-template-columns: auto minmax(0, auto) 1fr; }
.strips b { font-weight: 400; color: var(--soft); font-size: .82rem; text-align: right; min-width: 1.4rem; }
.strips span { font-size: .86rem; line-height: 1.3; } .strips .scale { font-size: .72rem; color: var(--soft);
  display: flex; justify-content: space-between; }
@media (max-width: 56rem) { .strips { grid-template-columns: auto minmax(0, 1fr); gap: .1rem .6rem; }
  .strips span { grid-column: 2; margin-bottom: .55rem; } .strips .none { display: none; } }
.charts { display: flex; flex-wrap: wrap; gap: 1.2rem 1.6rem; margin: .8rem 0 1.4rem; }
svg { display: block; max-width: 100%; height: auto; font: 11px system-ui, sans-serif; overflow: visible; }
svg .soft { fill: var(--soft); } svg .grid { stroke: var(--grid); fill: none; } svg .ink { fill: var(--ink); }
.flows { display: flex; flex-wrap: wrap; gap: 1rem; margin: .6rem 0 .4rem; }
.swatch { display: inline-flex; align-items: center; gap: .4rem; margin-right: 1rem; max-width: 100%; }
.swatch i { width: .8em; height: .8em; border-radius: 50%; }
.swatch :is(i, svg) { flex: none; } .legend { font-size: .85rem; color: var(--soft); }
.bar { width: 100%; min-width: 7rem; text-align: left; } .bar i { display: block; height: .7rem; border-radius: .2rem;
  background: var(--blue); width: var(--s); }
@media print { nav { display: none; } details { break-inside: avoid; } }
"""
    + WORDS_STYLE
)
