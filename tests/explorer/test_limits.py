"""What every answer carries, who is answered, and that nothing odd is ever answered with an error of the server."""

import asyncio
import html.parser
import re
import threading
from importlib.resources import files

import httpx
import pytest
from asking import info, noise, raw_request, refusal, told
from fastapi.testclient import TestClient

from torchcaps.explorer import create_app, interface, limits
from torchcaps.explorer.limits import HEADERS, host_name
from torchcaps.explorer.server import LOOPBACK

PAGE = files("torchcaps.explorer") / "page"
NAMESPACES = ("http://www.w3.org/2000/svg", "http://www.w3.org/1999/xlink", "http://www.w3.org/1999/xhtml")
JSON = {"content-type": "application/json"}


@pytest.fixture(scope="module")
def local():
    """The explorer that answers to this machine's names only."""
    return create_app(hosts=LOOPBACK)


# ---------------------------------------------------------------- headers


@pytest.mark.parametrize(
    ("method", "path", "code"),
    [
        ("GET", "/", 200),
        ("GET", "/main.js", 200),
        ("GET", "/style.css", 200),
        ("GET", "/favicon.svg", 200),
        ("GET", "/openapi.json", 200),
        ("GET", "/api/models", 200),
        ("GET", "/nothing", 404),
        ("GET", "/no/thing", 404),
        ("GET", "/api/models/nobody/samples", 404),
        ("DELETE", "/", 405),
        ("POST", "/api/models/mnist/look", 422),
        ("POST", "/api/models/mnist/upload", 422),
    ],
)
def test_every_answer_has_the_security_headers(client, method, path, code):
    answer = client.request(method, path)
    assert answer.status_code == code
    assert {name: answer.headers[name] for name in HEADERS} == HEADERS


def test_refusals_at_the_door_have_them_too(local):
    large = [("host", "localhost"), ("content-length", "9000000")]
    for headers, code in ((large, 413), ([("host", "evil.example")], 421)):
        status, got, body, _ = raw_request(local, "/api/models", headers=headers)
        assert status == code
        assert {name: got[name.lower()] for name in HEADERS} == HEADERS
        assert told(body).endswith(".")


def test_the_policy_lets_nothing_in_from_elsewhere_and_nothing_inline():
    policy = dict(part.strip().split(" ", 1) for part in HEADERS["Content-Security-Policy"].split(";"))
    assert policy["default-src"] == "'none'"
    assert "unsafe" not in HEADERS["Content-Security-Policy"]
    assert set(" ".join(policy.values()).split()) == {"'none'", "'self'", "data:", "blob:"}
    assert policy["script-src"] == policy["style-src"] == policy["connect-src"] == "'self'"


@pytest.mark.parametrize(
    ("name", "kind"),
    [("", "text/html"), ("main.js", "text/javascript"), ("style.css", "text/css"), ("favicon.svg", "image/svg+xml")],
)
def test_files_of_the_page_say_what_they_are(client, name, kind):
    answer = client.get(f"/{name}")
    assert answer.headers["content-type"].split(";")[0] == kind
    assert answer.content == (PAGE / (name or "index.html")).read_bytes()


class Page(html.parser.HTMLParser):
    """What a page refers to, and what is written into it that the policy forbids."""

    def __init__(self, text):
        super().__init__()
        self.references, self.inline, self._inside = [], [], None
        self.feed(text)
        self.close()

    def handle_starttag(self, tag, attrs):
        self._inside = tag if tag in ("script", "style") else None
        for name, value in attrs:
            if name in ("src", "href", "action", "srcset", "poster", "data", "formaction"):
                self.references.append(value)
            if name.startswith("on") or name == "style" or (value or "").strip().lower().startswith("javascript:"):
                self.inline.append(f"{tag} {name}={value}")

    def handle_endtag(self, tag):
        self._inside = None

    def handle_data(self, data):
        if self._inside and data.strip():
            self.inline.append(f"{self._inside}: {data}")


def test_the_page_has_nothing_inline_and_nothing_from_elsewhere(client):
    page = Page(client.get("/").text)
    assert page.inline == []
    assert page.references
    for reference in page.references:
        if reference.startswith("#"):
            continue
        assert re.fullmatch(r"\./[\w.-]+", reference), "relative, so that it works under any path"
        assert client.get(reference.removeprefix(".")).status_code == 200


def test_the_reader_of_pages_would_notice():
    page = Page('<p onclick="x()" style="a"><script>run()</script><a href="javascript:x"><img src="//else.where/x">')
    assert len(page.inline) == 4
    assert page.references == ["javascript:x", "//else.where/x"]


@pytest.mark.parametrize("name", sorted(file.name for file in PAGE.iterdir()))
def test_no_file_of_the_page_names_another_server(name):
    text = (PAGE / name).read_text(encoding="utf-8")
    for namespace in NAMESPACES:
        text = text.replace(namespace, "")
    assert not re.findall(r"(?:https?|wss?):?//\S+|url\(\s*['\"]?//|@import", text)


@pytest.mark.parametrize("name", sorted(file.name for file in PAGE.iterdir() if file.name.endswith(".js")))
def test_modules_import_files_that_are_there(client, name):
    text = (PAGE / name).read_text(encoding="utf-8")
    for path in re.findall(r"""(?:from|import)\s*\(?\s*["']([^"']+)["']""", text):
        assert path.startswith("./")
        assert client.get(path.removeprefix(".")).status_code == 200, path


# ---------------------------------------------------------------- names


@pytest.mark.parametrize("host", ["localhost", "LOCALHOST", "127.0.0.1", "[::1]"])
@pytest.mark.parametrize("port", ["", ":8650", ":1"])
def test_this_machines_names_are_answered(local, host, port):
    assert raw_request(local, "/api/models", headers=[("host", host + port)])[0] == 200


@pytest.mark.parametrize(
    "host",
    ["evil.example", "evil.example:8650", "localhost.evil.example", "127.0.0.1.evil.example", "localhost@evil.example",
     "evil.example:localhost", "0.0.0.0", "127.0.0.2", "[::]", "", ":8650", "localhost:8650:evil", "local host"],
)  # fmt: skip
@pytest.mark.parametrize("path", ["/", "/api/models", "/main.js", "/nothing"])
def test_other_names_are_not_answered(local, host, path):
    status, _, body, _ = raw_request(local, path, headers=[("host", host)])
    assert status == 421
    assert "does not answer to the name" in told(body)
    assert "allow_hosts" in told(body)


def test_no_name_at_all_is_not_answered(local):
    assert raw_request(local, "/api/models")[0] == 421


def test_without_names_given_all_are_answered(explorer):
    assert raw_request(explorer, "/api/models", headers=[("host", "my.server:80")])[0] == 200


def test_a_name_is_what_is_before_the_port():
    assert host_name("Some.Where:80") == host_name("some.where") == "some.where"
    assert host_name("[::1]:80") == host_name("[::1]") == "::1"


# ---------------------------------------------------------------- paths


@pytest.mark.parametrize(
    "path",
    ["/../", "/..", "/../app.py", "/page/../app.py", "/page/index.html", "/./main.js", "/etc/passwd", "//etc/passwd",
     "//main.js", "/app.py", "/__init__.py", "/..\\app.py", "/main.js\0", "/main.js\0.html", "/main.js/..", "/C:\\x",
     "/%2e%2e/app.py", "/..%2fapp.py", "/../page/index.html", "/api/models/../../app.py", "/api/../main.js", "/page",
     "/api/models/mnist/samples/../../../app.py", "/main.js%00", "/~root", "/.", "/index", "/MAIN.JS", "/*",
     "/main.js/", "/api/models/", "//evil.example/", "/evil.example/"],
)  # fmt: skip
def test_no_path_leads_to_a_file_that_is_not_of_the_page(explorer, path):
    status, _, body, _ = raw_request(explorer, path)
    assert status == 404
    assert told(body)


@pytest.mark.parametrize(
    "path", ["/%2e%2e/%2e%2e/etc/passwd", "/..%2f..%2fetc%2fpasswd", "/%2fetc%2fpasswd", "/app%2epy"]
)
def test_nor_does_one_that_is_escaped(client, path):
    refusal(client.get(path), 404)


@pytest.mark.parametrize("path", ["/docs", "/redoc", "/docs/oauth2-redirect"])
def test_the_documentation_pages_that_load_from_elsewhere_are_off(client, path):
    refusal(client.get(path), 404)


def test_the_schema_is_there(client):
    schema = client.get("/openapi.json").json()
    models = "/api/models"
    assert set(schema["paths"]) == {
        models, *(f"{models}/{{model}}/{what}" for what in ("samples", "look", "decode", "routing", "upload"))
    }  # fmt: skip
    for path in schema["paths"].values():
        for operation in path.values():
            assert {"400", "404", "413", "422", "429"} <= set(operation["responses"])
            for code, response in operation["responses"].items():
                shape = response["content"]["application/json"]["schema"]["$ref"]
                assert shape.endswith("/Problem") == (code != "200")


# ---------------------------------------------------------------- odd requests


@pytest.mark.parametrize("what", ["look", "decode", "routing"])
@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"null",
        b"[]",
        b'"pixels"',
        b"{",
        b"{}",
        b"\xff\xfe\x00",
        b"[" * 100_000,
        b'{"a":' * 50_000 + b"1" + b"}" * 50_000,
        b'{"pixels":' + b"[" * 900 + b"]" * 900 + b"}",
        b'{"pixels": NaN}',
        b'{"pixels": null}',
        b'{"pixels": "\\ud800"}',
        b'{"pixels": "AAAA\\u0000"}',
        b'{"pixels": "AAAA\\n"}',
        b'{"\\ud800": 1}',
        b'{"pixels": "AAAA", "pixels": 3}',
        b'{"label": NaN, "pose": [1]}',
        b'{"label": 0, "pose": [NaN]}',
        b'{"label": 0, "pose": [Infinity, -Infinity]}',
        b'{"label": 0, "pose": [1e999]}',
        b'{"label": 0, "pose": []}',
        b'{"label": 0, "pose": ' + b"[" + b"0," * 70 + b"0]}",
        b'{"label": 1e300, "pose": [0]}',
        b'{"label": 1' + b"0" * 30 + b', "pose": [0]}',
        b'{"label": 1' + b"0" * 6000 + b', "pose": [0]}',
        b'{"label": 0, "pose": {"0": 1}}',
    ],
    ids=lambda body: body[:24].decode("latin-1"),
)
def test_odd_json_is_refused(client, what, body):
    refusal(client.post(f"/api/models/mnist/{what}", content=body, headers=JSON), 400, 422)


@pytest.mark.parametrize(
    "kind",
    ["text/plain", "application/xml", "multipart/form-data", "multipart/form-data; boundary=x", "nonsense",
     "application/x-www-form-urlencoded", "application/json; charset=utf-99"],
)  # fmt: skip
@pytest.mark.parametrize("body", [b"", b"pixels=AAAA", b'{"pixels": "AAAA"}'])
def test_what_is_not_called_json_is_refused(client, kind, body):
    refusal(client.post("/api/models/mnist/look", content=body, headers={"content-type": kind}), 400, 422)


@pytest.mark.parametrize("model", ["é", "☃", "数字", "🎲", "mnist ", "MNIST", "%00", "%ff", "..", "x" * 101, "'\"<b>"])
def test_odd_names_of_models_are_refused(client, model):
    answer = client.get(f"/api/models/{model}/samples")
    refusal(answer, 404, 422)


@pytest.mark.parametrize("method", ["PUT", "DELETE", "PATCH", "OPTIONS", "TRACE", "FOO"])
@pytest.mark.parametrize("path", ["/", "/main.js", "/api/models", "/api/models/mnist/look"])
def test_other_methods_are_refused(client, method, path):
    refusal(client.request(method, path), 405)


@pytest.mark.parametrize(("path", "code"), [("/", 200), ("/main.js", 200), ("/none.js", 404), ("/api/models", 405)])
def test_heads_alone_are_given_of_the_page_only(client, path, code):
    answer = client.head(path)
    assert answer.status_code == code
    assert not answer.content


def test_there_are_no_web_sockets(client):
    with pytest.raises(Exception, match=".*") as end, client.websocket_connect("/api/models"):
        pass
    assert type(end.value).__name__ == "WebSocketDisconnect"


# ---------------------------------------------------------------- too many at once


def test_too_many_waiting_requests_are_told_to_come_back(monkeypatch):
    monkeypatch.setattr(interface, "MOST_WAITING", 2)
    app = create_app()
    asked = {"pixels": noise(TestClient(app), "mnist")}
    worker, free = app.state.workers.models, threading.Event()

    async def crowd():
        transport = httpx.ASGITransport(app)
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as many:
            blocked = asyncio.ensure_future(worker(free.wait, 20))
            await asyncio.sleep(0)
            first = asyncio.ensure_future(many.post("/api/models/mnist/look", json=asked))
            while worker._waiting < 2:
                await asyncio.sleep(0.001)
            refused = await many.post("/api/models/mnist/look", json=asked)
            listed = await many.get("/api/models")  # needs no model
            free.set()
            return await blocked, await first, refused, listed, await many.post("/api/models/mnist/look", json=asked)

    _, first, refused, listed, after = asyncio.run(crowd())
    assert (first.status_code, listed.status_code, after.status_code) == (200, 200, 200)
    assert "try again" in refusal(refused, 429)


def test_the_server_listens_while_a_model_works(explorer):
    free = threading.Event()

    async def meanwhile():
        transport = httpx.ASGITransport(explorer)
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as other:
            busy = asyncio.ensure_future(explorer.state.workers.models(free.wait, 20))
            answer = await asyncio.wait_for(other.get("/"), 5)
            assert not busy.done()
            free.set()
            await busy
            return answer

    assert asyncio.run(meanwhile()).status_code == 200


def test_titles_are_text_and_not_markup(client):
    assert all("<" not in info(client, name)["title"] for name in ("mnist", "fashion-mnist", "multi-mnist"))


def test_too_many_requests_at_once_are_told_to_come_back(monkeypatch):
    monkeypatch.setattr(limits, "MOST_REQUESTS", 3)
    app, sent = create_app(), []

    async def crowd():
        go_on = asyncio.Event()

        async def slowly():
            await go_on.wait()
            return {"type": "http.request", "body": b"{}", "more_body": False}

        async def send(message):
            sent.append(message)

        scope = {
            "type": "http", "method": "POST", "path": "/api/models/mnist/look", "raw_path": b"/", "query_string": b"",
            "headers": [(b"host", b"localhost"), (b"content-type", b"application/json")], "root_path": "",
        }  # fmt: skip
        slow = [asyncio.ensure_future(app(dict(scope), slowly, send)) for _ in range(3)]
        await asyncio.sleep(0.05)
        transport = httpx.ASGITransport(app)
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as other:
            refused = await other.get("/api/models")
            go_on.set()
            await asyncio.gather(*slow)
            return refused, await other.get("/api/models")

    refused, after = asyncio.run(crowd())
    assert "try again" in refusal(refused, 429)
    assert "content-security-policy" in refused.headers
    assert after.status_code == 200
    assert [message["status"] for message in sent if message["type"] == "http.response.start"] == [422] * 3
