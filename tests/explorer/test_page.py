"""The page in a real browser, against a real server: drawing, uploading, poses, two digits."""

import io
import re

import numpy as np
import pytest
from PIL import Image, ImageDraw

pytest.importorskip("playwright.sync_api", reason="Playwright is not installed: the page is NOT tested.")

from paging import NEEDS_BROWSER, ONE, SIX, ZERO, draw, eventually, keep, lengths, marked, pixels, predicted, sample

from torchcaps.pretrained import pretrained_samples

pytestmark = NEEDS_BROWSER


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


def test_what_was_erased_does_not_count(open_page):
    """A line that is gone must not decide how large the digit is."""
    page = open_page()
    page.click("#clear")
    draw(page, [(0.05, 0.05), (0.2, 0.05)])
    page.get_by_role("button", name="Erase").click()
    draw(page, [(0.02, 0.05), (0.25, 0.05)])
    page.get_by_role("button", name="Draw", exact=True).click()
    draw(page, [(0.55 + 0.4 * x, 0.55 + 0.4 * y) for x, y in SIX])
    predicted(page, "6")
    rows, _ = np.nonzero(pixels(page, "#seen")[..., 0] > 128)
    assert 17 <= np.ptp(rows) + 1 <= 20


def test_one_digit_of_two_is_one_answer(open_page):
    page = open_page(model="multi-mnist")
    page.click("#clear")
    page.click("#layer-2")
    draw(page, ZERO)
    predicted(page, "0")
    assert "always finds as many" in page.locator("#prediction-note").inner_text()
    assert page.locator("#alone figure").count() == 1
    assert page.locator("#bars .found").count() == 1
    tint = page.locator("#alone figure").evaluate("figure => figure.style.getPropertyValue('--tint')")
    assert tint == page.locator("#layer-2").evaluate("button => button.style.getPropertyValue('--tint')")
    page.click("#layer-1")
    draw(page, ONE)
    predicted(page, "0 and 1")
    assert "always" not in page.locator("#prediction-note").inner_text()


def test_a_drawn_digit_is_not_moved_off_the_pad(open_page):
    page = open_page(model="multi-mnist")
    page.click("#clear")
    draw(page, ZERO)
    page.get_by_role("button", name="Move").click()
    for _ in range(3):
        draw(page, [(0.3, 0.5), (0.9, 0.5)])
    shown = pixels(page, "#pad")
    _, columns = np.nonzero(shown[..., 0] + shown[..., 2] > 128)
    assert np.ptp(columns) > 0.4 * shown.shape[1]


def test_a_finger_that_scrolls_leaves_the_sliders_alone(open_page):
    """A browser moves a slider when it is touched, and cancels the touch when it turns out to be a scroll."""
    page = open_page(has_touch=True)
    sample(page, 6)
    slider = page.locator("#pose-3")
    before = slider.input_value()
    slider.dispatch_event("pointerdown", {"pointerType": "touch"})
    slider.fill("0.9")
    slider.dispatch_event("pointercancel", {"pointerType": "touch"})
    assert slider.input_value() == before
    assert page.locator(".slider.changed").count() == 0
