"""The cuts of one's own data: what belongs to the test is decided by each item alone."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from torchcaps.data.dataset import Files
from torchcaps.data.items import Entry, Item, hash_content
from torchcaps.data.record import RECORD, Row, SplitRecord, list_contradictions, make_record, read_record
from torchcaps.data.splits import _place, choose_entries, cut_by_content, cut_stratified, rank_by_content
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


def cut_one_class_each(keys, labels, part, purpose):
    """As it was before an item could have several labels."""
    places = {key: _place(key, purpose) for key in keys}
    aside = {key for key, place in places.items() if place < part}
    for label in sorted(set(labels)):
        members = {key for key, own in zip(keys, labels, strict=True) if own == label}
        ordered = sorted(members, key=places.__getitem__)
        if len(ordered) > 1 and not aside & members:
            aside.add(ordered[0])
        if aside.issuperset(ordered):
            aside.discard(ordered[-1])
    return [key in aside for key in keys]


@given(CONTENTS, st.sampled_from([0.05, 0.2, 0.6]))
def test_items_of_one_class_are_cut_as_ever(pairs, part):
    labels = [label for _, label in pairs]
    names = keys(*(f"{content} {label}" for content, label in pairs))
    assert cut_by_content(names, labels, part, "test").tolist() == cut_one_class_each(names, labels, part, "test")
    alone = [(label,) for label in labels]
    for cut in (cut_by_content, rank_by_content):
        assert cut(names, alone, part, "test").tolist() == cut(names, labels, part, "test").tolist()


SEVERAL = st.lists(st.tuples(st.integers(0, 60), st.frozensets(st.sampled_from("abcde"), max_size=3)), max_size=60)


@given(SEVERAL, st.sampled_from([cut_by_content, rank_by_content]), st.sampled_from([0.1, 0.2, 0.7]))
def test_of_several_labels_each_has_something_to_train_on(pairs, cut, part):
    names = keys(*(content for content, _ in pairs))
    labels = [tuple(sorted(label)) for _, label in pairs]
    aside = cut(names, labels, part, "test").tolist()
    for name in names:
        assert len({side for other, side in zip(names, aside, strict=True) if other == name}) == 1
    for label in {label for own in labels for label in own}:
        assert False in {side for own, side in zip(labels, aside, strict=True) if label in own}


def test_of_several_labels_each_is_on_both_sides_where_it_can_be():
    generator = torch.Generator().manual_seed(0)
    flags = torch.rand(300, 12, generator=generator) < torch.linspace(0.01, 0.5, 12)
    labels = [tuple(f"label{k}" for k in row.nonzero()[:, 0].tolist()) for row in flags]
    for cut in (cut_by_content, rank_by_content):
        aside = cut(keys(*range(300)), labels, 0.1, "test")
        assert 20 <= int(aside.sum()) <= 50
        wanted = flags.sum(dim=0) > 1
        assert flags[aside].any(dim=0)[wanted].all()
        assert flags[~aside].any(dim=0)[flags.any(dim=0)].all()


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


def test_copies_of_what_was_trained_on_are_not_counted_to_the_test():
    copy, twin = BEFORE[0]._replace(name="copy.png"), BEFORE[3]._replace(name="twin.png")
    after = [*BEFORE, copy, twin, Entry(hash_content(b"new"), "new.png", "a")]
    assert RECORDED.compare(after).copies == ("copy.png",)
    assert SplitRecord(RECORDED.rows, with_new=True).choose(after, "test") == [3, 4, 5, 7, 8]
    assert RECORDED.find_known(after) == [0, 1, 2, 3, 4, 5]


def test_items_of_one_name_are_not_taken_for_each_other():
    new = [Entry(hash_content(text.encode()), "data[0]", "a") for text in ("new", "newer")]
    changes = RECORDED.compare([*BEFORE, *new])
    assert changes.new == ("data[0]", "data[0]")


def test_a_run_without_test_items_says_so():
    record = SplitRecord(tuple(row for row in RECORDED.rows if row.split != "test"))
    with pytest.raises(DataError, match="had no test items when it was trained"):
        record.choose(BEFORE, "test")


def test_equal_contents_with_different_labels_are_found():
    assert list_contradictions(BEFORE) == []
    assert list_contradictions([*BEFORE, BEFORE[0]._replace(label="b", name="again.png")]) == ["0.png"]


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
