"""Every option of every command misspelt, without its value, or with one that it cannot have.

The cases are made from the commands' own parsers: a new option is tested because it is there.
"""

import argparse

import pytest
from refusals import assert_refusal, list_options

from torchcaps.cli import make_command_parser
from torchcaps.commands import COMMANDS
from torchcaps.commands.keys import KeyParser

NEEDED = {"evaluate": ["mnist"], "predict": ["mnist"], "explain": ["mnist"], "data": ["list"]}


def parser_of(command):
    keys = COMMANDS[command].parse is not None
    return KeyParser(COMMANDS[command].add_arguments) if keys else make_command_parser(command)


ACTIONS = [
    (command, action)
    for command in COMMANDS
    for action in parser_of(command)._actions
    if action.option_strings and action.help != argparse.SUPPRESS and action.option_strings[-1].startswith("--")
]
NAMES = [pytest.param(c, a.option_strings[-1], id=f"{c} {a.option_strings[-1]}") for c, a in ACTIONS]
HELP = {(command, action.option_strings[-1]): str(action.help) for command, action in ACTIONS}


@pytest.mark.parametrize(("command", "name"), NAMES)
def test_a_letter_too_few(command, name, refused):
    wrong = name[:-2] + name[-1] if len(name) > 6 else f"{name}x"
    if wrong in list_options(command):
        pytest.skip("which is another option")
    message = refused(command, *NEEDED.get(command, ()), wrong, "1")
    assert f"{command} has no option {wrong}" in message
    assert "Did you mean" in message or "--help" in message or "without" in message


@pytest.mark.parametrize(
    ("command", "name"),
    [
        pytest.param(command, action.option_strings[-1], id=f"{command} {action.option_strings[-1]}")
        for command, action in ACTIONS
        if action.nargs is None or action.nargs == "+"
    ],
)
def test_no_value(command, name, refused):
    message = refused(command, *NEEDED.get(command, ()), name)
    assert "needs a value" in message
    if action_of(command, name).nargs is None:
        message = refused(command, *NEEDED.get(command, ()), f"{name}=")
        assert f"{name} is empty" in message or f"{name} must be" in message or "short" in HELP[command, name]


def action_of(command, name):
    return next(action for one, action in ACTIONS if one == command and name in action.option_strings)


@pytest.mark.parametrize(
    ("command", "name"),
    [
        pytest.param(command, action.option_strings[-1], id=f"{command} {action.option_strings[-1]}")
        for command, action in ACTIONS
        if action.nargs == 0
    ],
)
def test_a_value_for_a_switch(command, name, refused):
    assert f"{name} takes no value, got 'yes'" in refused(command, *NEEDED.get(command, ()), f"{name}=yes")


NUMBERS = [(command, action) for command, action in ACTIONS if action.type is int and action.choices is None]


@pytest.mark.parametrize("value", ["many", "1.5", "nan", "", "0x1", "[1]", "1,000", "--json", "1e3"])
@pytest.mark.parametrize(
    ("command", "name"), [pytest.param(c, a.option_strings[-1], id=f"{c} {a.option_strings[-1]}") for c, a in NUMBERS]
)
def test_what_is_no_whole_number(command, name, value, refused):
    message = refused(command, *NEEDED.get(command, ()), name, value)
    assert f"{name} must be a whole number" in message or f"{name} needs a value" in message or "is empty" in message


@pytest.mark.parametrize(
    ("command", "name", "choices"),
    [
        pytest.param(c, a.option_strings[-1], a.choices, id=f"{c} {a.option_strings[-1]}")
        for c, a in ACTIONS
        if a.choices is not None
    ],
)
def test_what_is_no_choice(command, name, choices, refused):
    for choice in choices:
        wrong = f"{choice}x"
        message = refused(command, *NEEDED.get(command, ()), name, wrong)
        assert f"{name} must be " in message
        assert all(str(one) in message for one in choices)


MEANT = {
    "--epoch": "--epochs", "--num-epochs": "--training.epochs", "--max_epochs": "--training.epochs",
    "--lr": "--optimizer.lr", "--learning-rate": "--optimizer.lr", "--learning_rate": "--optimizer.lr",
    "--batch-size": "--training.batch_size", "--batch": "--training.batch_size", "--bs": "--training.batch_size",
    "--batchsize": "--training.batch_size", "--model": "--model.name", "--arch": "--model.name",
    "--data": "--data.name", "--dataset": "--data.name", "--gpu": "--training.accelerator",
    "--gpus": "--devices", "--cuda": "--training.accelerator", "--device": "--training.accelerator",
    "--output-dir": "--output", "--out": "--output", "--save-dir": "--output", "--loss": "--loss.kind",
    "--routing": "--model.options.routing", "--amp": "--training.precision", "--precison": "--precision",
    "--weight-decay": "--optimizer.weight_decay", "--wd": "--optimizer.weight_decay",
    "--schedule": "--optimizer.schedule",
    "--num_workers": "--training.threads", "--threads": "--training.threads", "--clip": "--optimizer.clip",
    "--val-split": "--data.validation", "--validation": "--data.validation", "--shift": "--data.shift",
    "--test": "--evaluate", "--eval": "--evaluate", "--ckpt": "--resume", "--kind": "--loss.kind",
    "--print_config": "--print-config", "--data_dir": "--data-dir", "--data.batch_size": "--training.batch_size",
    "--training.lr": "--optimizer.lr", "--optimizer.learning_rate": "--optimizer.lr",
    "--model.routing": "--model.options.routing",
    "--Epochs": "--epochs", "--TRAINING.EPOCHS": "--training.epochs", "--vectors": "--text.vectors",
    "--image-size": "--data.options.image_size", "--download": "--data.download",
}  # fmt: skip


@pytest.mark.parametrize("name", MEANT)
def test_what_others_call_it(name, refused):
    assert f"Did you mean {MEANT[name]}?" in refused("train", name, "3")


OF_OTHERS = [
    ("evaluate", "--dataset", "--data"), ("evaluate", "--data.name", "--data"),
    ("evaluate", "--data_dir", "--data-dir"),
    ("evaluate", "--jsn", "--json"), ("evaluate", "--model", "RUN"), ("evaluate", "--weights", "RUN"),
    ("evaluate", "--confusion-matrix", "--confusion"), ("predict", "--file", "WHAT"), ("predict", "--image", "WHAT"),
    ("predict", "--sentence", "--text"), ("predict", "--label", "--class"), ("explain", "--out", "--output"),
    ("explain", "--n", "--images"), ("explain", "--random-seed", "--seed"), ("explore", "--bind", "--host"),
    ("reproduce", "--epoch", "--epochs"), ("reproduce", "--seed", "--seeds"), ("reproduce", "--experiment", "NAME"),
    ("data", "--root", "--data-dir"), ("train", "--config", "RECIPE"), ("train", "--recipe", "RECIPE"),
]  # fmt: skip


@pytest.mark.parametrize(("command", "name", "meant"), OF_OTHERS)
def test_what_others_call_it_on_other_commands(command, name, meant, refused):
    message = refused(command, *NEEDED.get(command, ()), name, "x")
    assert f"Did you mean {meant}?" in message or f"{meant} is given without" in message


LINES = [
    [], ["inform"], ["trian"], ["--foo"], ["-x"], ["train train"], ["Train"], ["help"], ["\x1b[31mtrain"], ["tra\nin"],
    ["evaluate"], ["predict"], ["explain"], ["data"], ["data", "gte"], ["data", "get", "a", "b"], ["info", "x"],
    ["models", "capsnet"], ["reproduce"], ["reproduce", "a", "b"], ["evaluate", "a", "b"], ["explain", "a", "b"],
    ["train", "a", "b"], ["train", "-e", "3"], ["train", "---epochs", "3"], ["train", "--", "--epochs"],
    ["train", "--=3"], ["evaluate", "mnist", "--x\ny"], ["evaluate", "mnist", f"--{'x' * 5000}"],
    ["train", f"--data.{'y' * 5000}", "1"], ["predict", "mnist", "--csv", "--json", "a.png"],
    ["data", "list", "mnist"], ["data", "get"], ["data", "check"], ["data", "get", "nothing"],
    ["data", "get", "mnist-mini"], ["data", "get", "mr"], ["data", "check", "no/where"], ["data", "check", "mnst"],
    ["data", "check", ""], ["evaluate", ""], ["evaluate", " "], ["explain", ""], ["predict", "", "x.png"],
]  # fmt: skip


@pytest.mark.parametrize("words", LINES, ids=lambda words: " ".join(words)[:30].encode("unicode_escape").decode())
def test_lines_that_are_no_command(words, refused):
    refused(*words)


def test_the_words_are_checked():
    with pytest.raises(AssertionError):
        assert_refusal("Expected a typing.Literal['a'].")
    with pytest.raises(AssertionError):
        assert_refusal("give --data.name, such as mnist.", "evaluate")
    with pytest.raises(AssertionError):
        assert_refusal("run `torchcaps evaluate --data.name x`.")
    assert_refusal("give --data, such as mnist.", "evaluate")
