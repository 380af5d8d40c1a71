"""Whether a page is well formed, and what it refers to."""

import html.parser
import xml.etree.ElementTree
from urllib.parse import unquote

VOID = {"meta", "img", "br", "link", "hr", "input"}
BLOCKS = {"p", "div", "figure", "table", "section", "article", "h1", "h2", "h3", "h4", "details", "dl", "ol"}


def check_svg(text):
    """Whether an SVG is well formed, and refers to nothing elsewhere."""
    for element in xml.etree.ElementTree.fromstring(text).iter():
        assert not element.tag.endswith("script")
        for name, value in element.attrib.items():
            if name.endswith("href"):
                assert value.startswith(("#", "data:image/png;base64,"))


class Checked(html.parser.HTMLParser):
    """Reads a page and refuses what is not closed, not described, or from elsewhere."""

    def __init__(self, text):
        super().__init__()
        self.open, self.ids, self.links, self.headings, self.images = [], set(), [], [], 0
        self.said, self.alts, self.tables, self.heading_begins = "", [], [], 0
        self.feed(text)
        self.close()
        assert not self.open
        assert {link[1:] for link in self.links} <= self.ids
        steps = [(b, a) for a, b in zip(self.headings, self.headings[1:], strict=False)]
        assert all(after <= before + 1 for after, before in steps), self.headings
        assert self.headings.count(1) == 1

    def handle_starttag(self, tag, attributes):
        given = dict(attributes)
        assert tag != "script"
        assert not any(name.startswith("on") for name in given)
        assert not (tag in BLOCKS and "p" in self.open), f"{tag} within a paragraph"
        if "src" in given:
            assert given["src"].startswith(("data:image/png;base64,", "data:image/svg+xml,"))
            if "svg" in given["src"][:20]:
                check_svg(unquote(given["src"]).partition(",")[2])
        if tag == "a":
            assert given["href"].startswith("#")
            self.links.append(given["href"])
        if tag == "img":
            assert given["alt"]
            self.alts.append(given["alt"])
            self.images += 1
        if tag == "table" and "article" not in self.open:  # those of words have captions
            assert given["aria-label"] not in self.tables
            self.tables.append(given["aria-label"])
        if tag == "th":
            self.heading_begins = len(self.said)
        if "id" in given:
            assert given["id"] not in self.ids
            self.ids.add(given["id"])
        if tag in ("h1", "h2", "h3", "h4"):
            self.headings.append(int(tag[1]))
        if tag not in VOID:
            self.open.append(tag)

    def handle_data(self, data):
        self.said += data

    def handle_endtag(self, tag):
        if tag == "th":
            assert self.said[self.heading_begins :].strip(), "a heading without words"
        if tag not in VOID:
            assert self.open.pop() == tag
