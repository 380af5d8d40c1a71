"""What the tests of the page share: lines to draw, and ways to look at it. Pictures are kept in build/screenshots."""

import math
from pathlib import Path

import numpy as np
import pytest

from benchmarks.browser import chromium

SCREENSHOTS = Path(__file__).parents[2] / "build" / "screenshots"
SIX = [(0.62, 0.16), (0.45, 0.3), (0.35, 0.5), (0.34, 0.68), (0.42, 0.82), (0.56, 0.84), (0.66, 0.74), (0.64, 0.62),
       (0.52, 0.56), (0.4, 0.62)]  # fmt: skip
ONE = [(0.5, 0.15), (0.5, 0.85)]
ZERO = [(0.5 + 0.22 * math.sin(a / 2), 0.5 - 0.32 * math.cos(a / 2)) for a in range(14)]

NEEDS_BROWSER = pytest.mark.skipif(
    chromium() is None,
    reason="Chromium is not installed: the page is NOT tested. On Debian: apt-get install chromium",
)


def expected(message, failing):
    """The tests themselves read pixels from canvases again and again, which Chromium remarks on; and where they make
    requests fail it says so too."""
    known = ("Canvas2D: Multiple readback", *(["Failed to load resource"] if failing else []))
    return message.type == "log" or any(text in message.text for text in known)


def sample(page, index):
    """Chooses a test picture of MNIST, of which the first ten are 0 to 9."""
    page.locator("#samples button").nth(index).click()
    predicted(page, str(index))


def marked(page):
    return page.locator("#samples button").evaluate_all(
        "buttons => buttons.flatMap((button, i) => button.getAttribute('aria-pressed') === 'true' ? [i] : [])"
    )


def draw(page, points, midway=None):
    """Draws a line; ``midway`` is called before its last piece."""
    box = page.locator("#pad").bounding_box()
    places = [(box["x"] + x * box["width"], box["y"] + y * box["height"]) for x, y in points]
    page.mouse.move(*places[0])
    page.mouse.down()
    for place in places[1:-1]:
        page.mouse.move(*place, steps=4)
    if midway:
        midway()
    page.mouse.move(*places[-1], steps=4)
    page.mouse.up()


def pixels(page, selector):
    """What a canvas shows, [height, width, 4]."""
    found = page.evaluate(
        """selector => {
            const canvas = document.querySelector(selector);
            const data = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height).data;
            return [canvas.height, canvas.width, Array.from(data)];
        }""",
        selector,
    )
    return np.array(found[2], dtype=np.int64).reshape(found[0], found[1], 4)


def eventually(condition, page, what):
    """Playwright's own waiting evaluates text in the page, which the page's policy forbids."""
    for _ in range(250):
        found = condition()
        if found:
            return found
        page.wait_for_timeout(20)
    pytest.fail(f"waited in vain: {what}")


def predicted(page, text):
    eventually(lambda: page.locator("#prediction").inner_text().strip() == text, page, f"prediction {text!r}")


def routed(page):
    """Waits until the routing panel, too, is about the picture of now; what is predicted comes first."""
    eventually(lambda: page.locator("#stage:not(.stale) circle[data-part]").count() >= 50, page, "dots of this picture")


def keep(page, name, full_page=True):
    SCREENSHOTS.mkdir(parents=True, exist_ok=True)
    page.wait_for_timeout(300)  # bars glide for a moment
    page.screenshot(path=SCREENSHOTS / f"{name}.png", full_page=full_page)


def lengths(page, selector="#bars"):
    buttons = page.locator(f"{selector} button").all()
    return {int(button.get_attribute("data-class")): float(button.get_attribute("data-length")) for button in buttons}
