"""The page in a real browser, against a real server: routing, links, what is saved, keys."""

import base64
import re
from urllib.parse import urlsplit

import numpy as np
import pytest
from PIL import Image

pytest.importorskip("playwright.sync_api", reason="Playwright is not installed: the page is NOT tested.")

from paging import NEEDS_BROWSER, SCREENSHOTS, eventually, keep, lengths, marked, pixels, predicted, routed, sample

pytestmark = NEEDS_BROWSER


def test_routing_is_followed_step_by_step(open_page):
    page = open_page()
    page.locator("#samples button").nth(2).click()
    predicted(page, "2")
    dots = page.locator("#field circle[data-part]")
    eventually(lambda: dots.count() >= 50, page, "dots")
    step = page.locator("#step")
    assert (step.get_attribute("min"), step.get_attribute("max")) == ("1", "3")
    step.fill("1")
    eventually(lambda: "2.30" in page.locator("#entropy").inner_text(), page, "couplings begin uniform")
    first = lengths(page, "#parents")
    radii = dots.evaluate_all("dots => dots.map(dot => dot.style.getPropertyValue('r'))")
    keep(page, "routing-step-1")
    step.fill("3")
    eventually(lambda: lengths(page, "#parents")[2] > first[2] + 0.1, page, "the winner grows")
    assert lengths(page, "#parents") == pytest.approx(lengths(page), abs=0.006)
    assert radii != dots.evaluate_all("dots => dots.map(dot => dot.style.getPropertyValue('r'))")
    keep(page, "routing-step-3")
    box = dots.nth(10).bounding_box()
    page.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    eventually(lambda: "%" in page.locator("#goes").inner_text(), page, "where a part goes")
    keep(page, "routing-part")
    page.locator("#parents button").nth(2).hover()
    page.wait_for_timeout(200)
    keep(page, "routing-whole")
    assert re.search(r"step 3 of 3", page.locator("#routing-summary").inner_text(), re.IGNORECASE)


def test_a_link_restores_everything(open_page):
    page = open_page()
    page.locator("#samples button").nth(8).click()
    predicted(page, "8")
    page.select_option("#pose-class", "3")
    page.locator('#pose input[type="range"]').nth(2).fill("0.5")
    page.locator("#step").fill("2")
    page.wait_for_timeout(700)  # the address follows a little later
    drawing = pixels(page, "#pose-picture")
    fragment = "#" + urlsplit(page.evaluate("location.href")).fragment
    other = open_page(fragment=fragment)
    predicted(other, "8")
    assert other.locator("#pose-class").input_value() == "3"
    eventually(lambda: other.locator("#step").input_value() == "2", other, "the step")
    eventually(lambda: other.locator('#pose input[type="range"]').nth(2).input_value() == "0.5", other, "the slider")
    eventually(lambda: np.abs(pixels(other, "#pose-picture") - drawing).max() <= 2, other, "the same drawing")


def test_a_link_to_an_empty_pad(open_page):
    page = open_page()
    page.click("#clear")
    eventually(lambda: "raw" in page.locator("#prediction").inner_text(), page, "the pad asks for a drawing")
    page.wait_for_timeout(700)
    other = open_page(fragment="#" + urlsplit(page.evaluate("location.href")).fragment)
    other.wait_for_timeout(300)
    assert "raw" in other.locator("#prediction").inner_text()
    assert marked(other) == []


PICTURE = "picture=j" + base64.urlsafe_b64encode(b'{"b":null,"s":[[0,500,150,500,850]]}').decode().rstrip("=")


def test_the_links_of_these_tests_are_right_but_for_what_is_broken(open_page):
    page = open_page(fragment=f"#model=mnist&{PICTURE}&class=3&pose=2:0.5&step=2")
    predicted(page, "1")
    assert page.locator("#message").is_hidden()


BROKEN = [
    "#%%%=",
    "#" + "A=" * 5000,
    f"#model=nothing&{PICTURE}",
    "#model=mnist&picture=!!!",
    "#model=mnist&picture=qAAAA",
    "#model=mnist&picture=zAAAA",
    "#model=mnist&picture=jbnVsbA",
    "#model=mnist&picture=j" + base64.b64encode(b'{"b":"AAAA","s":[]}').decode(),
    f"#model=mnist&{PICTURE}&class=99",
    f"#model=mnist&{PICTURE}&class=x",
    f"#model=mnist&{PICTURE}&pose=0:99",
    f"#model=mnist&{PICTURE}&pose=a:b",
    f"#model=mnist&{PICTURE}&step=-1",
]


def test_a_broken_link_still_opens_the_page(open_page):
    page = open_page(fragment=BROKEN[0])
    for fragment in BROKEN:
        page.evaluate("fragment => { location.hash = fragment; }", fragment)
        message = page.locator("#message")
        eventually(lambda message=message: "link could not be read" in message.inner_text(), page, fragment[:60])
        page.click("#message-close")
        sample(page, 5)
        page.wait_for_timeout(400)  # the address follows a little later


def test_the_picture_is_saved_as_png(open_page):
    page = open_page()
    page.locator("#samples button").nth(9).click()
    predicted(page, "9")
    page.wait_for_timeout(400)
    with page.expect_download() as download:
        page.click("#export")
    assert re.fullmatch(r"torchcaps-mnist-9\.png", download.value.suggested_filename)
    SCREENSHOTS.mkdir(parents=True, exist_ok=True)
    download.value.save_as(SCREENSHOTS / "export.png")
    with Image.open(SCREENSHOTS / "export.png") as image:
        assert image.format == "PNG"
        assert min(image.size) > 600
        assert len(image.convert("RGB").getcolors(1_000_000)) > 50


def test_the_keyboard_is_enough(open_page):
    page = open_page()
    page.locator("#samples button").nth(1).focus()
    page.keyboard.press("Enter")
    predicted(page, "1")
    slider = page.locator('#pose input[type="range"]').first
    slider.focus()
    before, value = pixels(page, "#pose-picture"), float(slider.input_value())
    for _ in range(30):
        page.keyboard.press("ArrowRight")
    assert float(slider.input_value()) == pytest.approx(value + 0.3, abs=0.02)
    eventually(lambda: np.abs(pixels(page, "#pose-picture") - before).max() > 10, page, "the picture follows")
    page.locator("#step").focus()
    page.keyboard.press("Home")
    eventually(lambda: "2.30" in page.locator("#entropy").inner_text(), page, "the first step")


def test_everything_has_a_name_for_screen_readers(open_page):
    page = open_page()
    unnamed = page.evaluate(
        """() => [...document.querySelectorAll("button, input, select, canvas, a, [role=img]")]
            .filter(e => !(e.getAttribute("aria-label") || e.getAttribute("aria-labelledby") || e.textContent.trim()
                || e.labels?.length || e.title))
            .filter(e => e.checkVisibility() && !(e.tagName === "CANVAS" && e.closest("button[aria-label]")))
            .map(e => e.outerHTML.slice(0, 120))"""
    )
    assert unnamed == []
    levels = page.evaluate("[...document.querySelectorAll('h1, h2, h3')].map(e => Number(e.tagName[1]))")
    assert levels[0] == 1
    assert levels.count(1) == 1
    assert page.locator("main").count() == 1


def test_shortcuts_can_be_switched_off(open_page):
    page = open_page()
    sample(page, 3)
    page.click("#help")
    page.uncheck("#shortcuts-on")
    page.click("#shortcuts-close")
    page.keyboard.press("c")
    page.reload()
    predicted(page, "3")
    page.keyboard.press("c")
    page.wait_for_timeout(200)
    assert page.locator("#prediction").inner_text().strip() == "3"


def test_a_dot_keeps_the_focus_when_the_picture_changes(open_page):
    page = open_page()
    sample(page, 3)
    dot = page.locator("#field circle").first
    dot.focus()
    name = dot.get_attribute("aria-label")
    page.keyboard.press("n")
    eventually(lambda: dot.get_attribute("aria-label") != name or marked(page) != [3], page, "another picture")
    page.wait_for_timeout(300)
    assert page.evaluate("document.activeElement.tagName") == "circle"
    assert "%" in page.locator("#goes").inner_text()


def test_a_class_and_a_part_are_watched_through_the_steps(open_page):
    page = open_page()
    sample(page, 2)
    dots, watched = page.locator("#field circle[data-part]"), page.locator("#parents button[aria-pressed=true]")
    routed(page)
    page.locator("#parents button").nth(5).click()
    page.locator("#step").click()  # in its middle: the second of three
    page.keyboard.press(",")
    assert page.locator("#step-value").inner_text() == "1"
    box = page.locator("#field").bounding_box()
    page.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    eventually(lambda: "Where does it go" in page.locator("#goes").inner_text(), page, "a part is pointed at")
    page.mouse.move(box["x"] + box["width"] / 2, 1)
    assert watched.get_attribute("data-class") == "5"
    assert "to class 5" in page.locator("#goes").inner_text()
    assert "for 5" in page.locator("#agreement-of").inner_text()
    page.keyboard.press("Escape")
    assert watched.count() == 0
    dots.nth(20).focus()
    page.keyboard.press("Enter")
    page.locator("#another").focus()
    page.keyboard.press(".")
    assert page.locator("#step-value").inner_text() == "2"
    assert page.locator("#field circle[aria-pressed=true]").count() == 1
    assert page.locator("#ribbons path").count() == 10
    sample(page, 3)
    eventually(lambda: page.locator("#ribbons path").count() == 0, page, "another picture ends it")


def test_routing_can_go_on(open_page):
    page = open_page()
    sample(page, 2)
    routed(page)
    at_three = lengths(page, "#parents")
    page.get_by_role("button", name="20 steps").click()
    eventually(lambda: page.locator("#step-count").inner_text() == "20", page, "twenty steps")
    assert page.locator("#step-value").inner_text() == "20"
    entropy = float(page.locator("#entropy").inner_text().split()[0])
    assert entropy < 2.2
    keep(page, "routing-step-20")
    page.get_by_role("button", name="above an equal share").click()
    page.locator("#parents button").nth(7).click()
    page.locator("#step").fill("3")
    assert lengths(page, "#parents") == pytest.approx(at_three), "twenty steps begin as three do"
    page.wait_for_timeout(400)
    again = open_page(fragment="#" + urlsplit(page.url).fragment)
    eventually(lambda: again.locator("#step-count").inner_text() == "20", again, "a link holds them")
    routed(again)
    assert again.locator("#step-value").inner_text() == "3"
    assert again.get_by_role("button", name="above an equal share").get_attribute("aria-pressed") == "true"
    assert again.locator("#parents button[aria-pressed=true]").get_attribute("data-class") == "7"
    again.get_by_role("button", name="3 steps, as trained").click()
    eventually(lambda: again.locator("#step-count").inner_text() == "3", again, "as trained")


def test_a_link_to_a_test_picture_knows_its_label(open_page):
    page = open_page()
    sample(page, 4)
    page.wait_for_timeout(400)
    again = open_page(fragment="#" + urlsplit(page.url).fragment)
    eventually(lambda: "labelled 4 ✓" in again.locator("#prediction-note").inner_text(), again, "its label")
    assert marked(again) == [4]


def test_a_strip_of_pictures_is_one_stop(open_page):
    page = open_page()
    sample(page, 0)
    assert page.locator("#samples button[tabindex='0']").count() == 1
    page.locator("#samples button").nth(0).focus()
    for key in ("ArrowRight", "ArrowRight", "ArrowLeft", "Enter"):
        page.keyboard.press(key)
    predicted(page, "1")
    page.keyboard.press("End")
    assert page.locator("#samples button").last.evaluate("button => button === document.activeElement")
    page.keyboard.press("Control+z")
    predicted(page, "0")
