"""Every key of a recipe with values that it cannot have, on the command line and in a file.

The cases are made from the recipe's own fields: a new key is tested because it is there.
"""

from __future__ import annotations

from typing import Any, Literal, get_args, get_origin

import pytest
import yaml
from refusals import assert_refusal

from torchcaps.training.recipes import FREE, SECTIONS, RecipeError, list_known_keys, recipe_from_values
from torchcaps.typed import field_types

TEXTS = {
    "a word": "ten",
    "nothing": "",
    "a space": " ",
    "a list": "[a, b]",
    "a map": "{a: x}",
    "a line break": "1\n2",
    "a command to the terminal": "\x1b[31m1",
    "half a bracket": "[1",
    "a long text": "x" * 5000,
}
NUMBERS = {
    "negative": "-1",
    "very negative": "-1e300",
    "not a number": "nan",
    "not a number, in YAML": ".nan",
    "infinite": "inf",
    "negative infinite": "-inf",
    "with a comma": "0,5",
    "with a unit": "3px",
    "beyond all": "9" * 40,
}
WHOLE = {"with a fraction": "1.5", "true": "true", "with a power": "1e2", "a time": "1:30", "hexadecimal": "0x1f"}
VALUES: dict[str, Any] = {
    "a list": [1], "a map": {"a": "x"}, "a class": {"class_path": "os.system", "init_args": {"command": "true"}},
    "lists in lists": [[[]]], "a word": "ten", "a very long list": list(range(500)),
}  # fmt: skip
MAY_BE_ANY_TEXT = {"data.name", "data.dir", "text.vectors", "model.name", "description"}
"""What they name is looked for when it is needed."""


def type_of(key: str) -> Any:
    section, _, name = key.partition(".")
    return field_types(SECTIONS[section])[name] if name else str


def kinds_of(wanted: Any) -> set[Any]:
    """The plain types within a type; a choice is ``Literal``."""
    origin, parts = get_origin(wanted), get_args(wanted)
    if origin is Literal:
        return {Literal}
    if origin in (list, dict):
        return {origin}
    return set().union(*map(kinds_of, parts)) if parts else {wanted}


TYPED = [key for key in list_known_keys() if key not in FREE and str not in kinds_of(type_of(key))]
NUMERIC = [key for key in TYPED if kinds_of(type_of(key)) & {int, float}]
WHOLE_NUMBERS = [key for key in NUMERIC if not kinds_of(type_of(key)) & {float, list}]
ON_THE_COMMAND_LINE = [
    *((key, f"{name}: {text!r:.12}", text) for key in TYPED for name, text in TEXTS.items()),
    *((key, f"{name}: {text!r:.12}", text) for key in NUMERIC for name, text in NUMBERS.items()),
    *((key, f"{name}: {text!r:.12}", text) for key in WHOLE_NUMBERS for name, text in WHOLE.items()),
]


@pytest.mark.parametrize(
    ("key", "text"), [pytest.param(key, text, id=f"{key} {name}") for key, name, text in ON_THE_COMMAND_LINE]
)
def test_values_on_the_command_line(key, text, refused):
    message = refused("train", f"--{key}={text}", "--print-config")
    assert f"--{key}" in message
    assert "got" in message or "must be" in message or "is empty" in message


IN_A_FILE = [(key, name, value) for key in list_known_keys() if key not in FREE for name, value in VALUES.items()]


def nest(key: str, value: Any) -> Any:
    for part in reversed(key.split(".")):
        value = {part: value}
    return value


@pytest.mark.parametrize(
    ("key", "value"),
    [
        pytest.param(key, value, id=f"{key} {name}")
        for key, name, value in IN_A_FILE
        if not (isinstance(value, str) and str in kinds_of(type_of(key)) and key != "training.precision")
        and not (key == "training.inverse_temperature" and value in ([1], VALUES["a very long list"]))
    ],
)
def test_values_in_a_file(key, value):
    with pytest.raises(RecipeError) as caught:
        recipe_from_values(nest(key, value))
    assert_refusal(str(caught.value))
    assert key in str(caught.value)
    assert caught.value.option == key


NULL = [key for key in list_known_keys() if key not in FREE and type(None) not in kinds_of(type_of(key))]


@pytest.mark.parametrize("key", NULL)
def test_null_where_something_must_be(key):
    with pytest.raises(RecipeError, match="got null") as caught:
        recipe_from_values(nest(key, None))
    assert_refusal(str(caught.value))


TOO_SMALL = [
    ("training.epochs", 0), ("training.batch_size", 0), ("training.nodes", 0), ("training.devices", 0),
    ("training.threads", 0), ("training.checkpoint_every", 0), ("optimizer.lr", 0), ("optimizer.decay", 0),
    ("optimizer.decay_steps", 0), ("optimizer.clip", 0), ("optimizer.ema", 0), ("data.resize", 0), ("data.crop", 0),
    ("data.crops", 0), ("text.vector_size", 0), ("text.min_count", 0), ("text.max_words", 0), ("text.max_length", 0),
]  # fmt: skip
TOO_LARGE = [
    ("training.epochs", 10**15), ("training.devices", 10**6), ("training.threads", 10**6), ("training.seed", 2**63),
    ("training.first_epoch", 10**15), ("training.batch_size", 10**15),
    ("optimizer.decay", 1.5), ("optimizer.ema", 1), ("data.validation", 1), ("data.validation", 90),
    ("data.contrast", 2), ("data.crops", 2), ("data.shift", 10**10), ("data.resize", 10**10), ("data.crop", 10**10),
    ("text.vector_size", 10**12), ("optimizer.lr", 1e300),
]  # fmt: skip


@pytest.mark.parametrize(("key", "value"), [*TOO_SMALL, *TOO_LARGE])
def test_numbers_beyond_their_range(key, value, refused):
    assert f"--{key}" in refused("train", f"--{key}", value, "--print-config")


@pytest.mark.parametrize("key", [key for key in TYPED if Literal in kinds_of(type_of(key))])
def test_the_nearest_choice_is_named(key, refused):
    choices = [choice for choice in get_args(type_of(key)) if isinstance(choice, str)]
    for choice in choices:
        if len(choice) > 3:
            message = refused("train", f"--{key}", choice[:-1], "--print-config")
            assert f"Did you mean {choice!r}?" in message
            assert all(other in message for other in choices)


@pytest.mark.parametrize("value", ["hello", 5, [1], True, "", [], 0])
@pytest.mark.parametrize("key", FREE)
def test_options_that_are_no_keys_with_values(key, value, refused, tmp_path):
    (tmp_path / "r.yaml").write_text(yaml.safe_dump(nest(key, value)))
    assert f"--{key} must be keys with values" in refused("train", "r.yaml", "--print-config")
