"""The page in a real browser, against a real server. Pictures of it are kept in build/screenshots."""

import base64
import io
import math
import re
from pathlib import Path
from urllib.parse import urlsplit

import numpy as np
import pytest
from PIL import Image, ImageDraw

pytest.importorskip("playwright.sync_api", reason="Playwright is not installed: the page is NOT tested.")

from benchmarks.browser import chromium, explorer, opened_browser
from torchcaps.pretrained import pretrained_samples

SCREENSHOTS = Path(__file__).parents[2] / "build" / "screenshots"
SIX = [(0.62, 0.16), (0.45, 0.3), (0.35, 0.5), (0.34, 0.68), (0.42, 0.82), (0.56, 0.84), (0.66, 0.74), (0.64, 0.62),
       (0.52, 0.56), (0.4, 0.62)]  # fmt: skip
ONE = [(0.5, 0.15), (0.5, 0.85)]
ZERO = [(0.5 + 0.22 * math.sin(a / 2), 0.5 - 0.32 * math.cos(a / 2)) for a in range(14)]

pytestmark = pytest.mark.skipif(
    chromium() is None,
    reason="Chromium is not installed: the page is NOT tested. On Debian: apt-get install chromium",
)


@pytest.fixture(scope="module")
def address():
    with explorer() as (address, _):
        yield address


@pytest.fixture(scope="module")
def browser():
    with opened_browser() as browser:
        yield browser


@pytest.fixture
def open_page(browser, address):
    """Opens the page; at the end nothing may have gone wrong in it, and nothing may have left this machine."""
    contexts, complaints, requests = [], [], []

    def opened(width=1280, height=800, model=None, fragment="", failing=False, **options):
        context = browser.new_context(viewport={"width": width, "height": height}, **options)
        contexts.append(context)
        page = context.new_page()
        page.on("console", lambda message: expected(message, failing) or complaints.append(message.text))
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.on("request", lambda request: requests.append(request.url))
        page.goto(address + fragment)
        page.wait_for_selector("#bars button")
        if model:
            page.select_option("#model", model)
        page.wait_for_selector("#samples button")
        return page

    yield opened
    for context in contexts:
        context.close()
    assert complaints == []
    here = urlsplit(address).netloc
    assert [url for url in requests if not url.startswith(("data:", "blob:")) and urlsplit(url).netloc != here] == []


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


def keep(page, name, full_page=True):
    SCREENSHOTS.mkdir(parents=True, exist_ok=True)
    page.wait_for_timeout(300)  # bars glide for a moment
    page.screenshot(path=SCREENSHOTS / f"{name}.png", full_page=full_page)


def lengths(page, selector="#bars"):
    buttons = page.locator(f"{selector} button").all()
    return {int(button.get_attribute("data-class")): float(button.get_attribute("data-length")) for button in buttons}


def test_a_drawn_six_is_seen_as_a_six(open_page):
    page = open_page()
    page.click("#clear")
    draw(page, SIX)
    predicted(page, "6")
    found = lengths(page)
    assert max(found, key=found.get) == 6
    assert found[6] > 0.5
    seen = pixels(page, "#seen")[..., 0]
    rows, columns = np.nonzero(seen > 128)
    side = max(np.ptp(rows), np.ptp(columns)) / seen.shape[0] * 28
    assert 16 <= side <= 21  # as large as the digits of MNIST
    assert pixels(page, "#reconstruction")[..., :3].max() > 128
    keep(page, "drawn-six")


def test_clear_and_undo(open_page):
    page = open_page()
    page.click("#clear")
    draw(page, ONE)
    predicted(page, "1")
    draw(page, [(0.2, 0.2), (0.8, 0.2)])
    page.click("#undo")
    predicted(page, "1")
    page.click("#clear")
    eventually(lambda: "raw" in page.locator("#prediction").inner_text(), page, "the pad asks for a drawing")


def test_undo_brings_back_all_that_was_there(open_page):
    page = open_page()
    for _ in range(2):  # over the picture that the page opens with, both times
        draw(page, ONE)
        predicted(page, "1")
        page.click("#undo")
        predicted(page, "0")
        assert marked(page) == [0]
    sample(page, 3)
    sample(page, 5)
    page.click("#undo")
    predicted(page, "3")
    assert marked(page) == [3]


def test_a_click_that_moves_nothing_is_no_step(open_page):
    page = open_page(model="multi-mnist")
    page.click('[data-tool="move"]')
    page.click("#pad")
    assert page.locator("#undo").is_disabled()
    draw(page, [(0.4, 0.4), (0.5, 0.5)])
    assert page.locator("#undo").is_enabled()
    page.click("#undo")
    assert page.locator("#undo").is_disabled()


def test_a_key_in_the_middle_of_a_stroke(open_page):
    page = open_page(model="multi-mnist")
    for key in ("z", "n", "m"):
        draw(page, ZERO, midway=lambda key=key: page.keyboard.press(key))
        page.keyboard.press("d")
        page.click("#clear")
        draw(page, ONE)
        eventually(lambda: pixels(page, "#seen")[..., 0].max() > 200, page, f"a stroke after {key}")


def pointer(page, kind, x, y, number, button=0):
    """A pointer event on the pad that Playwright cannot make: of a second finger, one that is taken away, a pen."""
    page.evaluate(
        """([kind, x, y, pointerId, button]) => {
            const pad = document.querySelector("#pad");
            pad.setPointerCapture = () => {};  // there is no such pointer
            const box = pad.getBoundingClientRect();
            const [clientX, clientY] = [box.left + x * box.width, box.top + y * box.height];
            pad.dispatchEvent(new PointerEvent(kind, { pointerId, button, clientX, clientY, bubbles: true }));
        }""",
        [kind, x, y, number, button],
    )


def test_a_second_finger_does_not_disturb_the_first(open_page):
    page = open_page()
    pointer(page, "pointerdown", 0.5, 0.15, 101)
    for y in (0.3, 0.5, 0.7):
        pointer(page, "pointermove", 0.5, y, 101)
        pointer(page, "pointerdown", 0.9, 0.1, 102)
        pointer(page, "pointermove", 0.1, y, 102)
        pointer(page, "pointerup", 0.1, y, 102)
    pointer(page, "pointercancel", 0.5, 0.7, 101)
    predicted(page, "1")
    draw(page, [(0.2, 0.2), (0.8, 0.2)])
    page.click("#undo")
    predicted(page, "1")


def test_the_other_end_of_a_pen_erases(open_page):
    page = open_page()
    page.click("#clear")
    draw(page, ONE)
    predicted(page, "1")
    for kind, y in [("pointerdown", 0.05), ("pointermove", 0.5), ("pointermove", 0.95), ("pointerup", 0.95)]:
        pointer(page, kind, 0.5, y, 101, button=5)
    eventually(lambda: pixels(page, "#seen")[..., 0].max() == 0, page, "nothing left")


def test_a_stroke_stays_on_the_pad(open_page):
    page = open_page()
    draw(page, [(0.5, 0.5), (0.5, 0.9), (2.5, 0.9)])
    seen = np.nonzero(pixels(page, "#seen")[..., 0] > 128)
    assert np.ptp(seen[0]) >= 10  # 0.4 of the pad's height beside 0.5 of its width


def test_a_slider_changes_the_picture_and_reset_brings_it_back(open_page):
    page = open_page()
    page.locator("#samples button").nth(3).click()
    predicted(page, "3")
    page.wait_for_timeout(200)
    before = pixels(page, "#pose-picture")
    slider = page.locator('#pose input[type="range"]').nth(5)
    box = slider.bounding_box()
    page.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    page.mouse.down()
    page.mouse.move(box["x"] + box["width"] * 0.95, box["y"] + box["height"] / 2, steps=6)
    page.mouse.up()
    eventually(lambda: np.abs(pixels(page, "#pose-picture") - before).max() > 40, page, "another picture")
    keep(page, "slider")
    page.click("#pose-reset")
    eventually(lambda: np.abs(pixels(page, "#pose-picture") - before).max() <= 2, page, "the first picture again")
    page.click("#pose-random")
    eventually(lambda: np.abs(pixels(page, "#pose-picture") - before).max() > 10, page, "a random pose")


def test_any_class_can_be_chosen_and_a_dimension_played(open_page):
    page = open_page()
    page.locator("#samples button").nth(4).click()
    predicted(page, "4")
    page.select_option("#pose-class", "9")
    eventually(lambda: page.locator('#bars button[aria-pressed="true"]').count() == 1, page, "chosen")
    slider = page.locator('#pose input[type="range"]').first
    start = slider.input_value()
    page.locator(".pose-play").first.click()
    eventually(lambda: abs(float(slider.input_value()) - float(start)) > 0.05, page, "the slider moves by itself")
    page.keyboard.press("Escape")
    page.wait_for_timeout(150)
    still = slider.input_value()
    page.wait_for_timeout(250)
    assert slider.input_value() == still


def test_a_swing_ends_with_its_picture(open_page):
    page = open_page()
    page.locator("#samples button").nth(14).click()  # a second one of the same class
    predicted(page, "4")
    page.wait_for_timeout(300)
    other = pixels(page, "#pose-picture")
    sample(page, 4)
    page.locator(".pose-play").first.click()
    page.wait_for_timeout(300)
    page.locator("#samples button").nth(14).click()
    eventually(lambda: marked(page) == [14], page, "the other picture")
    page.wait_for_timeout(300)
    assert page.locator('.pose-play[aria-pressed="true"]').count() == 0
    assert np.abs(pixels(page, "#pose-picture") - other).max() <= 2
    page.locator(".pose-play").first.click()
    page.wait_for_timeout(100)
    page.select_option("#model", "multi-mnist")
    page.wait_for_timeout(300)
    assert page.locator("#message").is_hidden()


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


def test_two_digits_drawn_over_each_other_are_both_found(open_page):
    page = open_page(model="multi-mnist")
    page.click("#clear")
    page.click("#layer-1")
    draw(page, ONE)
    page.click("#layer-2")
    draw(page, ZERO)
    eventually(lambda: set(re.findall(r"\d", page.locator("#prediction").inner_text())) == {"0", "1"}, page, "0 and 1")
    eventually(lambda: pixels(page, "#reconstruction")[..., :3].max() > 100, page, "a reconstruction")
    colours = pixels(page, "#reconstruction")[..., :3]
    warm, cold = colours[..., 0] - colours[..., 2] > 60, colours[..., 2] - colours[..., 0] > 60
    assert warm.any()
    assert cold.any()
    keep(page, "two-digits")


def test_single_digits_can_be_dropped_on_the_pad(open_page):
    page = open_page(height=1000, model="multi-mnist")
    page.click("#clear")
    digit = page.locator("#digits button").first.bounding_box()
    box = page.locator("#pad").bounding_box()
    page.mouse.move(digit["x"] + digit["width"] / 2, digit["y"] + digit["height"] / 2)
    page.mouse.down()
    page.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2, steps=8)
    page.mouse.up()
    eventually(lambda: pixels(page, "#seen")[..., :3].max() > 200, page, "the dropped digit")
    one = (pixels(page, "#seen")[..., :3] > 128).sum()
    page.locator("#digits button").nth(4).click()
    eventually(lambda: (pixels(page, "#seen")[..., :3] > 128).sum() > one, page, "the second digit beside it")


def photograph():
    """A dark four on light paper, as a camera sees it."""
    image = Image.new("RGB", (300, 400), (225, 220, 210))
    pen = ImageDraw.Draw(image)
    pen.line([(130, 100), (90, 220), (210, 220)], fill=(30, 40, 60), width=16, joint="curve")
    pen.line([(180, 140), (170, 310)], fill=(30, 40, 60), width=16)
    content = io.BytesIO()
    image.save(content, "JPEG")
    return content.getvalue()


def test_an_uploaded_photograph_is_read(open_page):
    page = open_page()
    file = {"name": "four.jpg", "mimeType": "image/jpeg", "buffer": photograph()}
    page.set_input_files("#upload", file)
    predicted(page, "4")
    keep(page, "upload")


def test_an_image_is_read_in_another_way(open_page):
    page = open_page()
    page.click(".own summary")
    page.set_input_files("#upload", {"name": "four.jpg", "mimeType": "image/jpeg", "buffer": photograph()})
    predicted(page, "4")
    right = pixels(page, "#seen")
    page.select_option("#upload-invert", "no")
    eventually(lambda: np.abs(pixels(page, "#seen") - right).max() > 100, page, "another reading")
    page.select_option("#upload-invert", "auto")
    eventually(lambda: (pixels(page, "#seen") == right).all(), page, "the first reading")
    sample(page, 3)
    page.select_option("#upload-invert", "yes")  # of what? The image is gone.
    page.wait_for_timeout(300)
    assert page.locator("#prediction").inner_text().strip() == "3"


def test_an_image_stays_on_its_layer_and_late_ones_are_dropped(open_page):
    page = open_page(model="multi-mnist")
    page.click("#clear")
    page.click(".own summary")
    file = {"name": "four.jpg", "mimeType": "image/jpeg", "buffer": photograph()}
    page.set_input_files("#upload", file)
    second = page.locator('#layer-2[aria-pressed="true"]')
    eventually(lambda: second.count() == 1, page, "the next layer")
    right = pixels(page, "#seen")
    for way in ("no", "auto"):
        with page.expect_response("**/upload?**"):
            page.select_option("#upload-invert", way)
    eventually(lambda: (pixels(page, "#seen") == right).all(), page, "one digit, not two")
    assert second.count() == 1
    held = []
    page.route("**/upload?**", lambda route: held.append(route))
    page.set_input_files("#upload", file)
    eventually(lambda: held, page, "a slow upload")
    page.locator("#samples button").nth(3).click()
    held[0].continue_()
    page.wait_for_timeout(400)
    assert marked(page) == [3]


def test_options_that_would_do_nothing_are_hidden(open_page):
    page = open_page(model="fashion-mnist")
    page.click(".own summary")
    assert page.locator("#upload-invert").is_visible()
    assert page.locator("#upload-centre").is_hidden()


def test_a_file_that_is_no_image_leaves_everything_as_it_was(browser, address):
    page = browser.new_page()
    page.goto(address)
    page.locator("#samples button").nth(7).click()
    predicted(page, "7")
    file = {"name": "notes.png", "mimeType": "image/png", "buffer": b"these are only words"}
    page.set_input_files("#upload", file)
    eventually(lambda: "image" in page.locator("#message").inner_text(), page, "a message")
    assert page.locator("#prediction").inner_text().strip() == "7"
    page.click("#message-close")
    assert not page.locator("#message").is_visible()
    page.close()


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


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_phone_shows_everything_without_scrolling_sideways(open_page, scheme):
    page = open_page(390, 844, color_scheme=scheme, has_touch=True, device_scale_factor=2)
    page.locator("#samples button").nth(6).tap()
    predicted(page, "6")
    for selector in ("#pad", "#bars", "#reconstruction", "#pose", "#field", "#parents", "#step"):
        page.locator(selector).scroll_into_view_if_needed()
        box = page.locator(selector).bounding_box()
        assert box["x"] >= 0, selector
        assert box["x"] + box["width"] <= 390.5, selector
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    keep(page, f"phone-{scheme}")


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_projector_shows_all_panels(open_page, scheme):
    page = open_page(1920, 1080, color_scheme=scheme)
    page.locator("#samples button").nth(2).click()
    predicted(page, "2")
    page.wait_for_timeout(400)
    assert page.evaluate("document.documentElement.scrollWidth") <= 1920
    keep(page, f"projector-{scheme}")
    background = page.evaluate("getComputedStyle(document.body).backgroundColor")
    brightness = sum(int(value) for value in re.findall(r"\d+", background)[:3]) / 3
    assert (brightness > 128) == (scheme == "light")


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


def test_clothes_are_named(open_page):
    page = open_page(model="fashion-mnist")
    names = page.locator("#bars button .name").all_inner_texts()
    assert len(set(names)) == 10
    assert any("oot" in name for name in names)  # boots
    page.locator("#samples button").nth(1).click()
    eventually(lambda: max(lengths(page).values()) > 0.5, page, "an answer")
    assert int(pretrained_samples("fashion-mnist")["labels"][1, 0]) == 1
    keep(page, "clothes")


def test_the_server_may_go_and_come_back(open_page):
    page = open_page(failing=True)
    sample(page, 3)
    slider = page.locator('#pose input[type="range"]').nth(2)
    page.context.set_offline(True)
    slider.fill("0.5")
    eventually(lambda: "does not answer" in page.locator("#message").inner_text(), page, "a message")
    page.context.set_offline(False)
    eventually(lambda: page.locator("#message").is_hidden(), page, "the server is back")
    page.wait_for_timeout(300)
    assert slider.input_value() == "0.5"
    page.context.set_offline(True)
    page.select_option("#model", "fashion-mnist")
    eventually(lambda: page.locator("#message").is_visible(), page, "a message")
    assert page.locator("#samples button").count() == 0
    page.context.set_offline(False)
    eventually(lambda: page.locator("#samples button").count() > 0, page, "the samples of the other model")


def test_words_and_layers_follow_the_model(browser, address):
    def changed(route):
        answer = route.fetch().json()
        answer["models"] = [dict(answer["models"][0], objects=3, measure="activation", card=None)]
        route.fulfill(json=answer)

    context = browser.new_context()
    context.route("**/api/models", changed)
    page = context.new_page()
    page.goto(address)
    page.wait_for_selector("#samples button")
    assert page.locator("#layers button").all_inner_texts() == ["First digit", "Second digit", "Third digit"]
    assert "activation" in page.locator(".answer .lead:visible").inner_text()
    assert "activation 0." in page.locator("#bars button").first.get_attribute("aria-label")
    assert page.locator("#pose-length").inner_text() == ""
    draw(page, ONE)
    page.keyboard.press("3")
    draw(page, ZERO)
    page.wait_for_timeout(700)
    assert "picture2=" in page.evaluate("location.href")
    context.close()


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
