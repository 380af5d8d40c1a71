"""Names that look like HTML, CSS or a template come out as text: the pages are opened in a real Chromium."""

import numpy as np
import pytest
import torch

from benchmarks.browser import chromium, opened_browser
from torchcaps import create_model
from torchcaps.analysis.relevance import DecidingWords, NGrams
from torchcaps.data.images import Images, ImageSet
from torchcaps.report import Facts, explain
from torchcaps.report.colouring import render_words
from torchcaps.training.tasks import ImageTask

pytestmark = pytest.mark.skipif(
    chromium() is None,
    reason="Chromium is not installed: names in reports are NOT tested. On Debian: apt-get install chromium",
)

NAMES = (
    "<script>alert(1)</script>",
    "\"quotes\" & 'more' &amp;",
    '</style><img src=x onerror="alert(2)">',
    "{{ 7*7 }}{% x %}",
)
FILE = '"><script>alert(3)</script> & {{ 7*7 }}.npz'


@pytest.fixture(scope="module")
def browser():
    with opened_browser() as browser:
        yield browser


@pytest.fixture
def opened(browser, tmp_path):
    """Opens a page; no script may run in it, nothing may be wrong, and nothing be asked of anybody."""
    context = browser.new_context()
    page = context.new_page()
    complaints, requests = [], []
    page.on("dialog", lambda dialog: (complaints.append(dialog.message), dialog.dismiss()))
    page.on("console", lambda message: complaints.append(message.text))
    page.on("pageerror", lambda error: complaints.append(str(error)))
    page.on("request", lambda request: requests.append(request.url))

    def open_page(path):
        page.goto(path.resolve().as_uri())
        page.wait_for_timeout(200)
        return page

    yield open_page
    assert page.locator("script, [onerror]").count() == 0
    assert page.locator("html > head > style").count() == 1
    context.close()
    assert complaints == []
    assert [url for url in requests if not url.startswith(("file:", "data:"))] == []


@pytest.fixture(scope="module")
def report(tmp_path_factory):
    generator = np.random.default_rng(0)
    images = torch.from_numpy(generator.integers(0, 255, (24, 1, 17, 17), dtype=np.uint8))
    source = Images(ImageSet(images, torch.arange(24) % 4, NAMES))
    torch.manual_seed(0)
    model = create_model("capsnet-small", (1, 17, 17), 4).eval()
    task = ImageTask(NAMES, (1, 17, 17))
    facts = Facts(NAMES[0], FILE, command=f"torchcaps explain {FILE} --seed 0", model_options={NAMES[2]: NAMES[1]})
    return explain(model, task, source, tmp_path_factory.mktemp("names"), facts=facts).page


def test_names_in_a_report_are_text(report, opened):
    page = opened(report)
    assert page.title() == f"{NAMES[0]} on {FILE}, explained"
    assert page.locator("h1").text_content() == f"{NAMES[0]} on {FILE}"
    facts = dict(zip(page.locator("dt").all_text_contents(), page.locator("dd").all_text_contents(), strict=True))
    assert facts["data"] == f"{FILE}; 4 classes: {', '.join(NAMES)}"
    assert facts["model options"] == f"{NAMES[2]}={NAMES[1]}"
    assert facts["made by"].startswith(f"torchcaps explain {FILE} --seed 0 · torchcaps ")
    assert page.locator(".legend .swatch").all_text_contents() == [*NAMES, "undecided"]
    summaries = page.locator("#dimensions summary").all_text_contents()
    assert [text.partition(" measured over")[0] for text in summaries] == list(NAMES)
    labels = {
        text.partition("l = ")[2].partition(", p = ")[0] for text in page.locator("figcaption").all_text_contents()
    }
    assert set(NAMES) <= labels | {""}


def test_names_in_attributes_are_whole_and_every_picture_is_shown(report, opened):
    page = opened(report)
    alts = page.locator("img").evaluate_all("images => images.map(image => image.alt)")
    for name in NAMES:
        assert any(f"Class {name}, pose number 1 changed" in alt for alt in alts)
    assert page.locator("img").evaluate_all("images => images.filter(i => !i.complete || !i.naturalWidth).length") == 0
    attributes = page.locator("img").evaluate_all("images => images.map(i => i.getAttributeNames().join(' '))")
    assert set(attributes) == {"class src alt width height style", "src alt width height"}


def test_names_in_the_page_of_words_are_text(opened, tmp_path):
    relevance = torch.tensor([0.4, -0.2, 0.1, 0.3])
    words = DecidingWords(" ".join(NAMES), NAMES, (True, False, True, True), NAMES[2], 0.9, relevance,
                          (NGrams(1, relevance[:, None]),))  # fmt: skip
    (tmp_path / "words.html").write_text(render_words([words], FILE), encoding="utf-8")
    page = opened(tmp_path / "words.html")
    assert page.title() == page.locator("h1").text_content() == FILE
    assert page.locator("article .word").all_text_contents() == list(NAMES)
    assert page.locator("article h2").text_content() == f"{NAMES[2]} 0.900"
    titles = page.locator("article .word").evaluate_all("words => words.map(word => word.title)")
    assert titles == ["+0.4000", "-0.2000", "+0.1000", "+0.3000"]
    assert set(page.locator("article td:first-child").all_text_contents()) == set(NAMES)


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_charts_can_be_read_in_light_and_dark(browser, report, scheme):
    """Text on the page's ground: the darkest and the lightest pixel of a chart are far apart, in both."""
    context = browser.new_context(color_scheme=scheme)
    page = context.new_page()
    page.goto(report.resolve().as_uri())
    ground = page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert (ground == "rgb(255, 255, 255)") == (scheme == "light")
    shot = page.locator("#movements .charts img").first.screenshot()
    context.close()
    pixels = np.asarray(open_png(shot).convert("L"), dtype=int)
    paper = int(np.bincount(pixels.ravel()).argmax())
    assert (paper > 200) == (scheme == "light")
    assert np.abs(pixels - paper).max() > 150, "the title is far from the ground"


def open_png(content):
    import io

    from PIL import Image

    return Image.open(io.BytesIO(content))
