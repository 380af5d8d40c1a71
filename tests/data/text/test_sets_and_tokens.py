"""Sentences in memory, and how they are split into words."""

import dataclasses

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from torchcaps.data.dataset import Files
from torchcaps.data.datasets.text_benchmarks import MovieReviewsMini
from torchcaps.data.text.sets import TextSet
from torchcaps.data.text.tokens import find_scripts, tokenize
from torchcaps.errors import DataError

TEXTS = (("so", "so"), (), ("good",))


def test_one_class_each():
    data = TextSet(TEXTS, torch.tensor([0, 1, 1]), ("bad", "good"))
    assert len(data) == 3
    assert not data.multi_label
    for chosen in (torch.tensor([2, 0]), torch.tensor([True, False, True])):
        some = data[chosen]
        assert set(some.texts) == {("so", "so"), ("good",)}
        assert some.class_names == data.class_names
    assert data[torch.tensor([2, 0])].labels.tolist() == [1, 0]
    with pytest.raises(dataclasses.FrozenInstanceError):
        data.texts = ()


def test_several_classes_each():
    labels = torch.tensor([[True, False], [True, True], [False, False]])
    data = TextSet(TEXTS, labels, ("a", "b"))
    assert data.multi_label
    assert torch.equal(data[torch.tensor([1])].labels, labels[1:2])


def test_nothing_at_all_is_a_set():
    assert len(TextSet((), torch.empty(0, dtype=torch.int64), ("a", "b"))) == 0
    data = TextSet(TEXTS, torch.tensor([0, 1, 1]), ("bad", "good"))
    assert len(data[torch.tensor([], dtype=torch.int64)]) == 0


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        (torch.tensor([0, 1]), r"3 texts of 2 classes need labels int64 \[3\] or bool \[3, 2\].*shape \(2,\)"),
        (torch.tensor([0.0, 1, 1]), "got torch.float32"),
        (torch.tensor([True, False, True]), r"torch.bool of shape \(3,\)"),
        (torch.ones(3, 3, dtype=torch.bool), r"shape \(3, 3\)"),
        (torch.tensor([0, 1, 2]), "0 … 1 for 2 classes, got values from 0 to 2"),
        (torch.tensor([0, -1, 1]), "from -1 to 1"),
    ],
)
def test_labels_that_do_not_fit(labels, message):
    with pytest.raises(DataError, match=message):
        TextSet(TEXTS, labels, ("bad", "good"))


def test_a_sentence_that_is_not_split_and_a_choice_of_two_dimensions():
    with pytest.raises(DataError, match="tuples of tokens, got a string"):
        TextSet(("so so",), torch.tensor([0]), ("bad", "good"))
    with pytest.raises(DataError, match=r"indices \[M\] or a mask \[N\], got shape \(\)"):
        TextSet(TEXTS, torch.tensor([0, 1, 1]), ("bad", "good"))[torch.tensor(1)]


@pytest.mark.parametrize(
    ("text", "tokens"),
    [
        ("It's GOOD, isn't it?", "it 's good , is n't it ?"),
        ("they've they're they'd they'll I'm", "they 've they 're they 'd they 'll i 'm"),
        ("wo n't ( really ) !", "wo n't ( really ) !"),
        ("(a)b!c,d?", "( a ) b ! c , d ?"),
        ("well-made . . . 3.5 stars; a_b", "well made 3 5 stars a b"),
        ("`quoted' 'said 'sir", "`quoted' 'said 'sir"),
        ("don’t", "do n't"),
        ("Crème brûlée, Straße", "crème brûlée , straße"),
        ("cre\u0300me", "crème"),
        ("हिन्दी", "हिन्दी"),
        ("a\x00b\tc\x1b[0m\u200bd\r\n", "a b c 0m d"),
    ],
)
def test_tokenize(text, tokens):
    assert tokenize(text) == tuple(tokens.split())


@pytest.mark.parametrize("text", ["", " ", "\n\t\x00", "... -- ;:", "😀"])
def test_without_words_there_are_no_tokens(text):
    assert tokenize(text) == ()


def test_capitals_can_be_kept():
    assert tokenize("Who is Popeye DON'T", lower=False) == ("Who", "is", "Popeye", "DO", "N'T")


@pytest.mark.parametrize(
    ("text", "tokens"),
    [
        (
            "我用iPhone 15拍照，真的很好！",
            "我 用 iphone 15 拍 照 , 真 的 很 好 !",
        ),  # Chinese, Latin, digits, wide signs
        ("這部電影（2024年）不好看。", "這 部 電 影 ( 2024 年 ) 不 好 看"),
        ("東京タワーはすごい！", "東 京 タ ワ ー は す ご い !"),  # kanji, katakana with its long vowel, hiragana
        ("ｶﾞｷﾞ か\u3099 々〆", "ｶﾞ ｷﾞ が 々 〆"),
        ("ผมกินข้าว ที่บ้านน้ำ", "ผ ม กิ น ข้ า ว ที่ บ้ า น น้ำ"),  # Thai: vowels and tones with their letter
        ("ພາສາລາວ", "ພ າ ສ າ ລ າ ວ"),
        ("ភាសាខ្មែរ", "ភា សា ខ្មែ រ"),  # Khmer: a consonant below another one
        ("မြန်မာ ကမ္ဘာ", "မြ န် မာ က မ္ဘာ"),
        ("한국어 문장은 띄어쓰기가 있다.", "한국어 문장은 띄어쓰기가 있다"),  # Korean has spaces
        ("it's很好, don't!", "it 's 很 好 , do n't !"),
        ("好😀很❤️好 👍🏽", "好 很 好"),
        ("葛\U000e0100城", "葛 城"),  # another form of the same character
        ("𠮷野家", "𠮷 野 家"),
        ("हिन्दी and Ελληνικά", "हिन्दी and ελληνικά"),
    ],
)
def test_scripts_without_spaces_are_read_by_characters(text, tokens):
    assert tokenize(text) == tuple(tokens.split())
    assert tokenize(" ".join(tokenize(text))) == tokenize(text)


def test_words_are_what_they_were():
    assert tokenize("我用iPhone 15拍照，好！", units="words") == ("我用iphone", "15拍照", "好")
    assert tokenize("我 喜欢 东京", units="words") == ("我", "喜欢", "东京")


def test_every_script_can_be_read_by_characters():
    assert tokenize("It's 你好!", units="characters") == ("i", "t", "'", "s", "_", "你", "好", "_", "!")
    assert tokenize("Cre\u0300me 한국", False, "characters") == ("C", "r", "è", "m", "e", "_", "한", "국")
    assert tokenize("กิน हिन्दी", units="characters") == ("กิ", "น", "_", "हि", "न्", "दी")
    assert tokenize(" ... ", units="characters") == ()
    with pytest.raises(DataError, match="auto, words, characters, got 'syllables'") as caught:
        tokenize("a", units="syllables")
    assert caught.value.option == "text.units"


@given(st.text(st.characters(max_codepoint=0x0DFF)))
def test_scripts_with_spaces_are_read_as_before(text):
    assert tokenize(text) == tokenize(text, units="words")


def test_the_english_sentences_are_read_as_before():
    for split in ("train", "test"):
        texts = MovieReviewsMini().load(split).texts
        assert texts == MovieReviewsMini().load(split, Files(units="words")).texts
        assert not any(find_scripts(text) for text in texts)


def test_scripts_are_found():
    assert find_scripts(("a", "好")) == {"Chinese or Japanese"}
    assert find_scripts(("กิ", "か")) == {"Thai", "Chinese or Japanese"}
    assert find_scripts(("한국어", "हिन्दी")) == set()


def test_ten_thousand_words():
    assert len(tokenize("It's long, " * 10_000)) == 40_000


@given(st.text())
def test_what_is_tokenised_stays_as_it_is(text):
    tokens = tokenize(text)
    assert all(token.split() == [token] for token in tokens)
    assert tokenize(" ".join(tokens)) == tokens
