"""A user's own CSV and JSON-lines files."""

import json

import pytest

from torchcaps.data.text.files import read_text_file
from torchcaps.errors import DataError

ROWS = [(f"sentence {index}, so", ["ham", "spam", "ham"][index % 3]) for index in range(15)]


def as_csv(rows, delimiter=","):
    lines = [delimiter.join(("id", "text", "label"))]
    lines += [delimiter.join((str(number), f'"{text}"', label)) for number, (text, label) in enumerate(rows)]
    return "\n".join(lines) + "\n"


def as_jsonl(rows):
    return "".join(json.dumps({"text": text, "label": label}) + "\n" for text, label in rows)


def write(path, content):
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("a.csv", as_csv(ROWS)),
        ("a.csv", as_csv(ROWS, ";")),
        ("a.tsv", as_csv(ROWS, "\t")),
        ("a.csv", "\ufeff" + as_csv(ROWS).replace("\n", "\r\n")),
        ("a.csv", as_csv(ROWS).replace("\n", "\n\n")),
        ("a.jsonl", as_jsonl(ROWS)),
        ("a.jsonl", as_jsonl(ROWS).replace("\n", "\r\n\r\n").removesuffix("\r\n\r\n")),
    ],
)
def test_one_file_gives_a_fifth_of_each_class_to_the_test(tmp_path, name, content):
    path = write(tmp_path / name, content)
    train, test = (read_text_file(path, split) for split in ("train", "test"))
    assert train.class_names == test.class_names == ("ham", "spam")
    assert (train.labels.bincount().tolist(), test.labels.bincount().tolist()) == ([8, 4], [2, 1])
    expected = {("sentence", str(index), ",", "so"): ROWS[index][1] for index in range(15)}
    for data in (train, test):
        assert [expected.pop(text) for text in data.texts] == [data.class_names[label] for label in data.labels]
    assert not expected
    assert read_text_file(path, "test").texts == test.texts


@pytest.mark.parametrize("suffix", [".csv", ".tsv", ".jsonl"])
def test_a_folder_has_the_splits(tmp_path, suffix):
    write_rows = as_jsonl if suffix == ".jsonl" else as_csv
    write(tmp_path / f"train{suffix}", write_rows([("a", "x"), ("b", "y"), ("c", "x")]))
    write(tmp_path / f"test{suffix}", write_rows([("d", "y")]))
    assert read_text_file(tmp_path, "train").texts == (("a",), ("b",), ("c",))
    test = read_text_file(tmp_path, "test")
    assert (test.texts, test.labels.tolist(), test.class_names) == ((("d",),), [1], ("x", "y"))


def test_other_columns_and_quoted_line_breaks(tmp_path):
    path = write(tmp_path / "a.csv", 'class;review\nx;"one, ""two""\nthree"\ny;b\nx;c\ny;d\n')
    train = read_text_file(path, "train", text_column="review", label_column="class")
    test = read_text_file(path, "test", text_column="review", label_column="class")
    assert {("one", ",", "two", "three"), ("b",), ("c",), ("d",)} == {*train.texts, *test.texts}


def test_class_names_that_are_given(tmp_path):
    path = write(tmp_path / "a.csv", as_csv([("a", "x"), ("b", "x")]))
    assert read_text_file(path, "train", class_names=("z", "y", "x")).labels.tolist() == [2]
    with pytest.raises(DataError, match="does not know: x; known are z, y"):
        read_text_file(path, "train", class_names=("z", "y"))
    with pytest.raises(DataError, match="two or more different"):
        read_text_file(path, "train", class_names=("x", "x"))


def test_numbers_as_labels_are_sorted_as_numbers(tmp_path):
    rows = [("a", 10), ("b", 2), ("c", 10), ("d", -1)]
    path = write(tmp_path / "a.jsonl", as_jsonl(rows))
    assert read_text_file(path, "train").class_names == ("-1", "2", "10")
    path = write(tmp_path / "b.jsonl", as_jsonl([("a", True), ("b", False), ("c", True)]))
    assert read_text_file(path, "train").class_names == ("false", "true")


def test_empty_sentences_are_kept(tmp_path):
    path = write(tmp_path / "train.csv", 'text,label\n"",x\n...,y\n')
    write(tmp_path / "test.csv", "text,label\n,x\n")
    assert read_text_file(tmp_path, "train").texts == ((), ())
    assert read_text_file(tmp_path, "test").texts == ((),)
    with pytest.raises(DataError, match="one text per class"):
        read_text_file(path, "test")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "a.csv is empty"),
        ("text,label\n", "has a header but no texts"),
        ("sentence,label\na,x\n", "no column 'text'; its columns are 'sentence', 'label'. Give text_column"),
        ("text;class;id\na;x;1\n", "no column 'label'; its columns are 'text', 'class', 'id'"),
        ("text,text,label\na,b,x\n", "more than one column 'text'"),
        ("text,label\na,x\nb,c,y\n", "line 3 of .*a.csv has 3 fields, the header has 2.*double quotes"),
        ("text,label\na,x\nb\n", "line 3 of .* has 1 fields"),
        ('text,label\n"a,x\nb,y\n', "no proper CSV at line 3.*quote not closed"),
        (f"text,label\n{'a ' * 70_000},x\n", "no proper CSV at line 2.*131,072 characters go into a .jsonl"),
        ("text,label\na,x\nb, \n", "line 3 of .*a.csv has no label in the column 'label'"),
        ("text,label\na,x\nb,x\n", "one class only: 'x'.*at least two"),
        ("text,label\ngut,x\nsch\xf6n,y\n".encode("latin-1"), "a.csv is not UTF-8: byte 0xf6 at position 20.*as UTF-8"),
    ],
)
def test_csv_that_is_refused(tmp_path, content, message):
    path = write(tmp_path / "a.csv", content)
    with pytest.raises(DataError, match=message):
        read_text_file(path, "train")


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ('{"text": "a", ', "line 2 of .*a.jsonl is no JSON"),
        ('["a", "x"]', "line 2 of .* must be a JSON object with text, label"),
        ('{"review": "a", "label": "x"}', "no column 'text'; its columns are 'review', 'label'"),
        ('{"text": null, "label": "x"}', "'text' in line 2 of .* must be a string, got None"),
        ('{"text": "a"}', "line 2 of .* has no label in 'label'; it has 'text'"),
        ('{"text": "a", "label": null}', "line 2 of .* has no label"),
        ('{"text": "a", "label": " "}', "line 2 of .* has no label"),
        ('{"text": "a", "label": ["x", "y"]}', r"must be a string or a whole number, got \['x', 'y'\]"),
        ('{"text": "a", "label": 1.5}', "got 1.5"),
        ("[" * 100_000, "line 2 of .* is no JSON"),
    ],
)
def test_json_lines_that_are_refused(tmp_path, line, message):
    path = write(tmp_path / "a.jsonl", '{"text": "a", "label": "x"}\n' + line + "\n")
    with pytest.raises(DataError, match=message):
        read_text_file(path, "train")


def test_a_class_that_training_never_had(tmp_path):
    write(tmp_path / "train.csv", as_csv([("a", "x"), ("b", "y")]))
    write(tmp_path / "test.csv", as_csv([("c", "z")]))
    for split in ("train", "test"):
        with pytest.raises(DataError, match="the test file has classes that training does not know: z; known are x, y"):
            read_text_file(tmp_path, split)


def test_paths_and_splits_that_are_refused(tmp_path):
    with pytest.raises(DataError, match="there is no file or folder .*nothing.csv"):
        read_text_file(tmp_path / "nothing.csv", "train")
    with pytest.raises(DataError, match="must end in .csv, .tsv, .jsonl"):
        read_text_file(write(tmp_path / "a.xlsx", "text,label"), "train")
    with pytest.raises(DataError, match="one file train.csv, .tsv or .jsonl, there is none"):
        read_text_file(tmp_path, "train")
    write(tmp_path / "train.csv", as_csv(ROWS))
    with pytest.raises(DataError, match="one file test.csv, .tsv or .jsonl, there is none. A single file"):
        read_text_file(tmp_path, "train")
    write(tmp_path / "train.jsonl", as_jsonl(ROWS))
    with pytest.raises(DataError, match="found train.csv and train.jsonl"):
        read_text_file(tmp_path, "train")
    with pytest.raises(DataError, match="train, test or all, got 'valid'"):
        read_text_file(tmp_path, "valid")
