"""The explorer of the shipped models, made once: as an app, and for the tests of the page served to a browser."""

from urllib.parse import urlsplit

import pytest
from fastapi.testclient import TestClient
from paging import expected

from benchmarks.browser import explorer as served_explorer
from benchmarks.browser import opened_browser
from torchcaps.explorer import create_app


@pytest.fixture(scope="session")
def explorer():
    return create_app()


@pytest.fixture(scope="session")
def client(explorer):
    return TestClient(explorer, raise_server_exceptions=False)  # what breaks is an answer with 500, as in life


@pytest.fixture(scope="module")
def address():
    with served_explorer() as (address, _):
        yield address


@pytest.fixture(scope="module")  # not longer: while it is open, asyncio counts as running
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
