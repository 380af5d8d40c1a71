"""The cuts of one's own data: what belongs to the test is decided by each item alone."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from torchcaps.data.dataset import Files
from torchcaps.data.items import Entry, Item, hash_content
from torchcaps.data.record import RECORD, Row, SplitRecord, make_record, read_record
from torchcaps.data.splits import choose_entries, cut_by_content, cut_stratified, rank_by_content
from torchcaps.errors import DataError, FileError

CONTENTS = st.lists(st.tuples(st.integers(0, 300), st.sampled_from("abc")), max_size=80)


def keys(*contents):
    return [hash_content(str(content).encode()) for content in contents]


def entries(*pairs, part=""):
    return [
        Entry(hash_content(text.encode()), f"{number}.png", label, part) for number, (text, label) in enumerate(pairs)
    ]


def test_the_cut_is_the_same_on_every_machine():
    cut = cut_by_content(keys(*range(40)), ["a"] * 40, 0.2, "test")
    assert cut.nonzero().flatten().tolist() == [1, 2, 4, 8, 10, 25, 26, 34]
    old = cut_stratified(torch.zeros(10, dtype=torch.int64), 0)
    assert old.nonzero().flatten().tolist() == [1, 4]  # torch.randperm(10) with seed 0 begins with 4, 1


@pytest.mark.parametrize(("count", "tested"), [(1, 0), (2, 1), (3, 1), (5, 1), (8, 2), (10, 2), (100, 20)])
def test_sizes_of_the_cut_of_old_runs(count, tested):
    cut = cut_stratified(torch.cat([torch.zeros(count), torch.ones(4)]).long(), 0)
    assert int(cut[:count].sum()) == tested
    assert int(cut[count:].sum()) == 1


@given(CONTENTS, st.sampled_from([cut_by_content, rank_by_content]))
def test_every_class_is_on_both_sides_and_equal_items_are_on_one(pairs, cut):
    labels = [label for _, label in pairs]
    contents = [f"{content} {label}" for content, label in pairs]
    aside = cut(keys(*contents), labels, 0.2, "test").tolist()
    for content in contents:
        assert len({side for other, side in zip(contents, aside, strict=True) if other == content}) == 1
    for label in set(labels):
        sides = {side for own, side in zip(labels, aside, strict=True) if own == label}
        different = {content for content, own in zip(contents, labels, strict=True) if own == label}
        assert sides == ({True, False} if len(different) > 1 else {False})


@given(st.lists(st.integers(), min_size=60, max_size=120, unique=True), st.integers(0, 59))
def test_items_that_come_and_go_move_no_others(contents, gone):
    labels = ["a"] * len(contents)
    before = dict(zip(contents, cut_by_content(keys(*contents), labels, 0.2, "test").tolist(), strict=True))
    rest = [*contents[:gone], *contents[gone + 1 :], "new"]
    after = dict(zip(rest, cut_by_content(keys(*rest), labels, 0.2, "test").tolist(), strict=True))
    if sum(before.values()) > 1 and sum(after.values()) > 1:
        assert all(after[content] == before[content] for content in rest[:-1])


def test_a_part_is_about_so_large_and_another_purpose_cuts_otherwise():
    many = keys(*range(5000))
    tested, other = (cut_by_content(many, ["a"] * 5000, 0.2, purpose) for purpose in ("test", "validation 0"))
    assert 900 < int(tested.sum()) < 1100
    assert 100 < int((tested & other).sum()) < 300
    assert int(rank_by_content(many, ["a"] * 5000, 0.13, "x").sum()) == 650
    assert not cut_by_content(many, ["a"] * 5000, 0.0, "test").any()
    for cut in (cut_by_content, rank_by_content):
        with pytest.raises(DataError, match=r"in \[0, 1\)"):
            cut(many, ["a"] * 5000, 1.0, "test")


BEFORE = entries(("one", "a"), ("two", "b"), ("three", "a"), ("four", "b"), ("five", "a"), ("five", "a"))
RECORDED = make_record(
    BEFORE,
    [Item(*BEFORE[number][:2]) for number in (0, 1)],
    [Item(*BEFORE[number][:2]) for number in (2,)],
    [3, 4, 5],
)


def test_a_record_finds_its_items_wherever_they_are():
    after = [entry._replace(name=f"elsewhere/{entry.name}") for entry in reversed(BEFORE)]
    assert RECORDED.choose(after, "train") == [5, 4, 3]
    assert RECORDED.choose(after, "test") == [2, 1, 0] or RECORDED.choose(after, "test") == [2, 0, 1]
    assert not RECORDED.compare(after).describe()
    assert RECORDED.matches(after)
    train, aside = RECORDED.cut_validation([Item(*after[number][:2]) for number in (5, 4, 3)])
    assert (train.tolist(), aside.tolist()) == ([0, 1], [2])


def test_a_record_names_what_has_changed():
    after = [
        BEFORE[0]._replace(key=hash_content(b"edited")),  # of training
        BEFORE[1]._replace(label="a"),
        BEFORE[3],
        *BEFORE[4:],
        Entry(hash_content(b"new"), "new.png", "a"),
    ]
    changes = RECORDED.compare(after)
    assert changes == (("2.png",), ("0.png",), ("1.png",), ("new.png",), ())
    assert changes.describe() == "1 missing (2.png); 1 changed (0.png); 1 with another label (1.png); 1 new (new.png)"
    assert RECORDED.choose(after, "test") == [2, 3, 4]
    assert RECORDED.choose(after, "train") == [1]
    assert SplitRecord(RECORDED.rows, with_new=True).choose(after, "test") == [2, 3, 4, 5]  # not what was trained on
    assert not RECORDED.matches(after)
    with pytest.raises(DataError, match="has its data been replaced"):
        RECORDED.choose(after[-1:], "test")


def test_the_record_decides_over_the_folders_of_the_data():
    given = [entry._replace(part="test") for entry in BEFORE]
    assert choose_entries(given, "train", Files(record=RECORDED)) == [0, 1, 2]
    assert choose_entries(given, "test", Files()) == list(range(6))
    assert choose_entries(given, "all", Files(record=RECORDED)) == list(range(6))


def test_a_record_is_written_and_read(tmp_path):
    strange = SplitRecord((*RECORDED.rows, Row("test", "0" * 32, 'a "b", c', "line\nbreak,\\ud800.png")))
    strange.write(tmp_path)
    assert read_record(tmp_path) == strange
    assert read_record(tmp_path / "nowhere") is None


@pytest.mark.parametrize(
    "text",
    [
        "", "split,key\n", "split,key,label,item\ntrain,xyz,a,b\n",
        "split,key,label,item\nvalid," + "0" * 32 + ",a,b\n",
        "split,key,label,item\ntrain," + "0" * 32 + ",a\n", 'split,key,label,item\ntrain,"',
    ],
)  # fmt: skip
def test_a_record_that_is_none_is_refused(tmp_path, text):
    (tmp_path / RECORD).write_text(text)
    with pytest.raises(DataError, match=r"split\.csv"):
        read_record(tmp_path)


def test_a_record_is_not_read_from_elsewhere(tmp_path):
    (tmp_path / "run").mkdir()
    RECORDED.write(tmp_path)
    (tmp_path / "run" / RECORD).symlink_to(tmp_path / RECORD)
    with pytest.raises(FileError, match="leads out"):
        read_record(tmp_path / "run")
