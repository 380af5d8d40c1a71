"""A user's own CSV and JSON-lines files."""

import json

import pytest
import torch

from torchcaps.data.dataset import Files
from torchcaps.data.labels import split_labels
from torchcaps.data.options import DataOptions
from torchcaps.data.registry import find_dataset, make_dataset
from torchcaps.data.text.files import TextFile, read_text_file
from torchcaps.data.text.sets import TextSet
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
        (
            "sentence,label\na,x\n",
            "no column 'text'; its columns are 'sentence', 'label'.*data.options.text_column=sentence",
        ),
        ("Review,Sentiment\na,x\n", "text_column=Review and data.options.label_column=Sentiment"),
        ("a b,c\nd,e\n", "no column 'text'.*Give data.options.text_column.*first line names the columns"),
        ("text;class;id\na;x;1\n", "no column 'label'; its columns are 'text', 'class', 'id'.*label_column=class"),
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
        ('{"text": "a", "category": "x"}', "If the labels are in 'category', give data.options.label_column=category"),
        ('{"text": "a", "label": ["x", "x"]}', "line 2 of .*: the label 'x' is there twice"),
        ('{"text": "a", "label": ["x", ""]}', "line 2 of .* has an empty label"),
        ('{"text": "a", "label": ["x", ["y"]]}', r"must be a string, a whole number or a list of these, got \['y'\]"),
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
    for name, advice in (("a.xlsx", "CSV UTF-8"), ("a.txt", "says nothing of labels"), ("a.dat", "Rename it")):
        with pytest.raises(DataError, match=f"must end in .csv, .tsv, .jsonl.*{advice}"):
            read_text_file(write(tmp_path / name, "text,label"), "train")
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


@pytest.mark.parametrize("name", ["reviews.txt", "reviews.xlsx", "reviews.json", "reviews.parquet"])
def test_other_kinds_of_files_are_told_what_to_do(tmp_path, name):
    write(tmp_path / name, "so so\n")
    with pytest.raises(DataError, match=r"must end in .csv, .tsv, .jsonl.*(CSV|\.csv|\.jsonl)"):
        find_dataset(str(tmp_path / name))(path=str(tmp_path / name)).load("train")


def test_folders_of_texts_are_told_what_to_do(tmp_path):
    (tmp_path / "tables").mkdir()
    write(tmp_path / "tables" / "reviews.csv", as_csv(ROWS))
    with pytest.raises(DataError, match=r"give the path of reviews.csv itself, or call the files train.csv"):
        find_dataset(str(tmp_path / "tables"))
    for name in ("pos", "neg"):
        (tmp_path / "files" / name).mkdir(parents=True)
        write(tmp_path / "files" / name / "1.txt", "so so")
    with pytest.raises(DataError, match=r"has a file for each text. Write them into one .csv"):
        find_dataset(str(tmp_path / "files"))
    write(tmp_path / "files" / "pos" / "1.png", "an image")
    assert find_dataset(str(tmp_path / "files")).kind == "images"


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-be", "utf-16-le", "utf-32", "utf-8-sig"])
def test_a_byte_order_mark_says_the_encoding(tmp_path, encoding):
    mark = "\ufeff" if encoding.endswith("e") else ""
    path = write(tmp_path / "a.csv", (mark + as_csv([("größe", "x"), ("b", "y"), ("c", "x")])).encode(encoding))
    assert ("größe",) in read_text_file(path, "all").texts


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (as_csv(ROWS).encode("utf-16-le"), "UTF-16 without a byte-order mark.*iconv -f UTF-16LE"),
        (as_csv(ROWS).encode("utf-16")[:-1], "begins as UTF-16 and is none"),
        ("text,label\nschön,y\n".encode("latin-1"), "Latin-1.*CSV UTF-8.*iconv -f WINDOWS-1252 -t UTF-8"),
    ],
)
def test_other_encodings_are_told_how_to_convert(tmp_path, content, message):
    with pytest.raises(DataError, match=message):
        read_text_file(write(tmp_path / "a.csv", content), "train")


def test_spaces_around_the_names_of_columns_do_not_count(tmp_path):
    path = write(tmp_path / "a.csv", "text , label\na,x\nb,y\nc,x\n")
    assert len(read_text_file(path, "all")) == 3


def test_halves_of_characters_are_read(tmp_path):
    path = write(tmp_path / "a.jsonl", '{"text": "a \\ud800", "label": 0}\n{"text": "b", "label": 1}\n')
    assert read_text_file(path, "all").texts == (("a",), ("b",))


# ---------------------------------------------------------------- any number of labels

SEVERAL = [
    ("rain", "wet|cold"),
    ("sun", "warm"),
    ("snow", " cold | wet |"),
    ("fog", ""),
    ("hail", "wet"),
    ("heat", "warm"),
]
NAMES = ("cold", "warm", "wet")
FLAGS = [[1, 0, 1], [0, 1, 0], [1, 0, 1], [0, 0, 0], [0, 0, 1], [0, 1, 0]]


def several_lines(column="labels", separator="|"):
    rows = [f'{text},"{labels.replace("|", separator)}"' for text, labels in SEVERAL]
    return "\n".join([f"text,{column}", *rows])


@pytest.mark.parametrize(
    ("name", "content", "options"),
    [
        ("a.csv", several_lines(), {}),
        ("a.csv", several_lines("topics"), {"label_column": "topics", "label_separator": "|"}),
        ("a.csv", several_lines("label", ", "), {"label_separator": ","}),
        ("a.csv", several_lines("label", "::"), {"label_separator": "::"}),
        ("a.tsv", several_lines().replace(",", "\t"), {}),
        ("a.jsonl", "\n".join(json.dumps({"text": t, "labels": list(split_labels(c, "|"))}) for t, c in SEVERAL), {}),
        ("a.jsonl", "\n".join(json.dumps({"text": t, "label": list(split_labels(c, "|"))}) for t, c in SEVERAL), {}),
        ("a.jsonl", "\n".join(json.dumps({"text": t, "labels": c}) for t, c in SEVERAL), {}),
    ],
)
def test_a_text_may_have_any_number_of_labels(tmp_path, name, content, options):
    data = read_text_file(write(tmp_path / name, content), "all", **options)
    assert data.class_names == NAMES
    assert data.labels.dtype == torch.bool
    assert data.labels.int().tolist() == FLAGS
    dataset = make_dataset(DataOptions(str(tmp_path / name), options))
    entries = dataset.list_entries()
    assert [entry.label for entry in entries] == ["cold | wet", "warm", "cold | wet", "", "wet", "warm"]
    train, test = (dataset.load(split) for split in ("train", "test"))
    assert {item.key for item in train.items}.isdisjoint(item.key for item in test.items)
    assert train.labels.any(dim=0).all()
    assert test.labels.any(dim=0).all(), "something of every label is tested"


def test_lists_and_single_labels_may_be_mixed(tmp_path):
    lines = ['{"text": "a", "label": "x"}', '{"text": "b", "label": ["y", 3]}', '{"text": "c", "label": []}']
    data = read_text_file(write(tmp_path / "a.jsonl", "\n".join(lines)), "all")
    assert data.class_names == ("3", "x", "y")
    assert data.labels.int().tolist() == [[0, 1, 0], [1, 0, 1], [0, 0, 0]]


def test_a_column_labels_with_one_each_is_of_one_class_each(tmp_path):
    path, said = write(tmp_path / "a.csv", "text,labels\na,x\nb,y\nc,x\nd,y\n"), []
    data = read_text_file(path, "train", files=Files(notice=said.append))
    assert not data.multi_label
    assert "exactly one label in 'labels'" in said[0]
    assert read_text_file(path, "all", label_separator="|").multi_label, "unless it is asked for"


@pytest.mark.parametrize(
    ("content", "options", "message"),
    [
        ("text,labels\na,x|x\n", {}, "line 2 of .*: the label 'x' is there twice. Give it once"),
        ("text,labels\na,\nb,|\n", {}, "has no labels; a classifier needs at least two"),
        ("text,labels\na,x\nb,\n", {}, "one class only: 'x'"),
        ("text,label\na,x\nb,\n", {}, "has no label in the column 'label'.*data.options.label_separator"),
        ("text,label\na,x\nb,y\n", {"label_separator": ""}, "label_separator must be what is between labels"),
    ],
)
def test_labels_that_are_refused(tmp_path, content, options, message):
    path = write(tmp_path / "a.csv", content)
    with pytest.raises(DataError, match=message):
        read_text_file(path, "train", **options)


def test_a_wrong_separator_names_its_option(tmp_path):
    path = write(tmp_path / "a.csv", several_lines())
    for value in ("", 3):
        with pytest.raises(DataError) as caught:
            make_dataset(DataOptions(str(path), {"label_separator": value}))
        assert caught.value.option == "data.options.label_separator"


def test_what_is_read_of_a_file_is_told(tmp_path):
    said = []
    path = write(tmp_path / "a.csv", "id,text,labels,label,date\n1,a,x,x,0\n2,b,y,y,0\n3,c,y,x,0\n")
    TextFile(str(path)).load("train", Files(notice=said.append))
    assert said == [f"Of {path} the columns 'text' and 'label' are read; left out: 'id', 'labels', 'date'."]
    said.clear()
    TextFile(str(write(path, several_lines()))).load("train", Files(notice=said.append))
    assert said == [
        f"A text of {path} may have any number of 3 labels (cold, warm, wet): 1.17 on average, 1 have none."
    ]
    TextFile(str(path)).load("test", Files(notice=said.append))
    assert len(said) == 1, "once is enough"


def test_one_label_each_as_flags():
    data = TextSet((("a",), ("b",)), torch.tensor([1, 0]), ("x", "y"))
    assert data.with_flags().labels.tolist() == [[False, True], [True, False]]
    assert data.with_flags().with_flags().multi_label
