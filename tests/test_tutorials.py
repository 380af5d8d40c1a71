"""The tutorials run, print what they show, and draw their pictures."""

import importlib.util
import re
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PAGES = sorted((ROOT / "docs" / "tutorials").glob("[0-9]-*.md"))
OWN_DATA = ROOT / "docs" / "own-data.md"
OWN_NETWORKS = ROOT / "docs" / "own-networks.md"
EXPERIMENTS = ROOT / "docs" / "experiments.md"
LINK = re.compile(r"\]\(([^)\s]+)\)")


@pytest.fixture(scope="module")
def runner():
    spec = importlib.util.spec_from_file_location("tutorials", ROOT / "scripts" / "tutorials.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules["tutorials"] = module
    spec.loader.exec_module(module)
    yield module
    del sys.modules["tutorials"]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_a_page_prints_and_draws_what_it_shows(runner, page, tmp_path):
    outputs = runner.run(page, tmp_path)
    assert runner.differences(page, outputs) == []
    shown = runner.pictures(page)
    drawn = {f"images/{path.name}" for path in (tmp_path / "images").glob("*")}
    assert shown == drawn
    for picture in shown:
        committed = page.parent / picture
        assert committed.is_file(), f"run python scripts/tutorials.py --write {page.name}"
        assert committed.stat().st_size < 60_000
        assert committed.read_bytes()[16:24] == (tmp_path / picture).read_bytes()[16:24]  # width and height of a PNG


def test_the_page_on_networks_of_ones_own_runs_and_learns(runner, tmp_path):
    outputs = runner.run(OWN_NETWORKS, tmp_path)
    assert runner.differences(OWN_NETWORKS, outputs) == []
    loop, resnet, *_ = (block.code for block in runner.blocks_of(OWN_NETWORKS.read_text()))
    lines = [sum(bool(line.strip()) for line in code.splitlines()) for code in (loop, resnet)]
    assert lines[0] <= 15
    assert lines[1] <= 20
    assert "](docs/own-networks.md)" in (ROOT / "README.md").read_text()


def test_an_experiment_of_ones_own_runs(runner, tmp_path):
    outputs = runner.run(EXPERIMENTS, tmp_path)
    assert runner.differences(EXPERIMENTS, outputs) == []
    assert "| one transform for all parts |" in (tmp_path / "few-digits" / "table.md").read_text()


def test_the_page_on_data_of_ones_own_runs(runner, tmp_path):
    outputs = runner.run(OWN_DATA, tmp_path)
    assert runner.differences(OWN_DATA, outputs) == []
    assert "](own-data.md)" in (ROOT / "docs" / "data.md").read_text()


def test_there_are_six_pages_in_the_index():
    assert len(PAGES) == 6
    index = (PAGES[0].parent / "README.md").read_text()
    for page in PAGES:
        assert f"]({page.name})" in index


def test_no_picture_is_left_over(runner):
    shown = set().union(*(runner.pictures(page) for page in PAGES))
    assert {f"images/{path.name}" for path in (PAGES[0].parent / "images").iterdir()} == shown


@pytest.mark.parametrize("page", [PAGES[0].parent / "README.md", *PAGES, OWN_NETWORKS], ids=lambda page: page.stem)
def test_links_lead_somewhere(page):
    for link in LINK.findall(page.read_text()):
        if not link.startswith("https://"):
            assert (page.parent / link.partition("#")[0]).exists(), link


PAGE = """Some words.

```python
word = "ready"
print(f"{word} after {3} steps of 0.500")
```

```text
ready after 3 steps of 0.500
```

```python
print(word)
```

```text
ready
```
"""


def test_a_page_is_parsed(runner):
    first, second = runner.blocks_of(PAGE)
    assert first.code == 'word = "ready"\nprint(f"{word} after {3} steps of 0.500")\n'
    assert (first.line, first.output) == (3, "ready after 3 steps of 0.500\n")
    assert PAGE.splitlines()[second.line] == "print(word)"


@pytest.fixture
def checked(runner, tmp_path):
    """What is wrong with a page, when its blocks are really run."""

    def check(text):
        page = tmp_path / "page.md"
        page.write_text(text)
        return runner.differences(page, runner.run(page, tmp_path))

    return check


def test_a_right_page_passes(checked):
    assert checked(PAGE) == []
    assert checked(PAGE.replace("0.500\n```\n\n```python", "0.501\n```\n\n```python")) == []  # within the tolerance


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("ready after 3 steps of 0.500\n```", "ready after 3 steps of 0.550\n```"),  # a number
        ("ready after 3 steps of 0.500\n```", "ready after 4 steps of 0.500\n```"),  # a whole number
        ("```text\nready\n```", "```text\nsteady\n```"),  # a word
        ("```text\nready\n```", "```text\nready\nready\n```"),  # a line too many
        ("\n```text\nready\n```\n", ""),  # nothing shown
        ("print(word)\n", "pass\n"),  # nothing printed
    ],
)
def test_a_wrong_page_is_found(checked, old, new):
    assert old in PAGE
    (wrong,) = checked(PAGE.replace(old, new))
    assert "page.md, block at line" in wrong


def test_an_error_names_the_line_of_the_page(runner, tmp_path):
    page = tmp_path / "page.md"
    page.write_text(PAGE.replace("print(word)", "print(wort)"))
    with pytest.raises(RuntimeError, match=r'page.md", line 13'):
        runner.run(page, tmp_path)


@pytest.mark.parametrize(
    ("expected", "actual", "same"),
    [
        ("loss 1.00", "loss 1.01", True),
        ("loss 1.00", "loss 1.03", False),
        ("loss 0.001", "loss -0.000", True),
        ("loss 0.001", "loss 0.004", False),
        ("[1, 2.0]", "[1, 2.01]", True),
        ("a  b", "a b", True),
        ("3×24", "3×25", False),
        ("nan", "0.0", False),
        ("1e-05", "2e-05", False),
        ("x1", "x2", False),
        ("-1.5°", "1.5°", False),
    ],
)
def test_what_counts_as_the_same(runner, expected, actual, same):
    assert (runner.difference(expected, actual) is None) == same


def test_writing_puts_the_real_output_in(runner):
    wrong = PAGE.replace("of 0.500\n```\n\n```python", "of 7\n```\n\n```python")
    outputs = [block.output for block in runner.blocks_of(PAGE)]
    assert runner.rewritten(wrong, outputs) == PAGE
    assert runner.rewritten(PAGE, [outputs[0], ""]).count("```text") == 1
    assert runner.rewritten(PAGE.replace("\n```text\nready\n```\n", ""), outputs) == PAGE
