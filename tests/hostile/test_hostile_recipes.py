"""Recipes that ask for code, for the whole memory, or for files elsewhere."""

import json
import os

import pytest
import yaml
from watching import CANARY, assert_sentence, watched

from torchcaps.commands.keys import read_keys
from torchcaps.training.recipes import RecipeError, list_known_keys, recipe_from_file

CALLED = {"class_path": f"{CANARY}.sing", "init_args": {"command": "x"}}
PLANTS = {
    "called": CALLED,
    "class": {"class_path": f"{CANARY}.Bird"},
    "name": f"{CANARY}.Bird",
    "deep": {"a": [{"b": CALLED}]},
    "list": [CALLED],
    "kwargs": {"class_path": f"{CANARY}.Bird", "init_args": {}, "dict_kwargs": {"a": 1}},
}
TAGS = {
    "apply": f"!!python/object/apply:{CANARY}.sing [x]",
    "new": f"!!python/object/new:{CANARY}.Bird {{}}",
    "object": f"!!python/object:{CANARY}.Bird {{}}",
    "name": f"!!python/name:{CANARY}.sing ''",
    "module": f"!!python/module:{CANARY} ''",
    "system": "!!python/object/apply:os.system ['touch pwned']",
    "own tag": "!sing x",
}
KEYS = [*list_known_keys(), "model.options.routing", "model.options.x", "model.options.routing.name", "data", "model"]


def nested(key, value):
    for part in reversed(key.split(".")):
        value = {part: value}
    return value


@pytest.mark.parametrize("plant", ["called", "deep", "name"])
@pytest.mark.parametrize("key", KEYS)
def test_no_key_of_a_recipe_imports_or_calls(key, plant, harmless, tmp_path):
    (tmp_path / "r.yaml").write_text(yaml.safe_dump(nested(key, PLANTS[plant])))
    harmless("train", "r.yaml", "--print-config")


@pytest.mark.parametrize("tag", TAGS)
@pytest.mark.parametrize("key", ["description", "data.name", "model.options", "model.options.x", "training.precision"])
def test_no_tag_makes_an_object(key, tag, refused, tmp_path):
    text = yaml.safe_dump(nested(key, "PLACE")).replace("PLACE", TAGS[tag])
    (tmp_path / "r.yaml").write_text(text)
    assert "not YAML" in refused("train", "r.yaml", "--print-config")


@pytest.mark.parametrize("plant", ["called", "deep", "kwargs"])
@pytest.mark.parametrize("command", ["train --resume", "evaluate", "explain", "predict", "explore"])
def test_no_command_that_opens_a_run_follows_its_recipe(command, plant, run, harmless, tmp_path, canary):
    """A model that has no such option refuses it, but nothing is called on the way."""
    recipe = yaml.safe_load((run / "recipe.yaml").read_text())
    recipe["model"]["options"] |= {"routing": PLANTS[plant], "x": PLANTS[plant]}
    (run / "recipe.yaml").write_text(yaml.safe_dump(recipe))
    if command == "explore":
        open_explorer(run, tmp_path)
        return
    harmless(*command.split(), run, *(["nothing.png"] if command == "predict" else []))


def open_explorer(run, tmp_path):
    from torchcaps.errors import TorchcapsError
    from torchcaps.explorer import create_app

    with watched(tmp_path):
        try:
            create_app([run], pretrained=False)
        except TorchcapsError as error:
            assert_sentence(str(error))


@pytest.mark.parametrize("override", ["--model.options", "--model.options.x", "--model.options.routing", "--data.name"])
def test_the_command_line_calls_nothing_either(override, harmless):
    harmless("train", override, json.dumps(CALLED), "--print-config")


BOMB = "a: &a [x, x, x, x, x, x, x, x, x]\n" + "\n".join(
    f"{name}: &{name} [{', '.join([f'*{before}'] * 9)}]" for before, name in zip("abcdefgh", "bcdefghi", strict=True)
)
TEXTS = {
    "alias bomb": (BOMB, "alias"),
    "alias bomb in options": ("model: {options: {" + BOMB.replace("\n", ", ") + "}}", "alias"),
    "endless alias": ("description: &a [*a]", "alias"),
    "deep list": ("description: " + "[" * 5000, "nested"),
    "deep closed list": ("description: " + "[" * 5000 + "]" * 5000, "nested"),
    "deep map": ("{a: " * 3000 + "1" + "}" * 3000, "nested"),
    "deep json": ('{"model": ' + '{"options": ' * 2000 + "1" + "}" * 2001, "nested"),
    "deep block": ("\n".join(" " * n + "a:" for n in range(300)), "nested"),
    "same key twice": ("data: {name: mnist}\ndata: {name: mnist-mini}", "comes twice"),
    "same option twice": ("model: {options: {routing: em, routing: dynamic}}", "comes twice"),
    "huge number": ("training: {seed: " + "9" * 50_000 + "}", "not YAML"),
    "number of many parts": ("training: {seed: " + "59:" * 20_000 + "59}", "beyond 2^63"),
    "large number": ("training: {seed: " + "9" * 100 + "}", "beyond 2^63"),
    "huge float": ("optimizer: {lr: 1e999}", "lr"),
    "infinite rate": ("optimizer: {lr: .inf}", "lr"),
    "no rate": ("optimizer: {lr: .nan}", "lr"),
    "no floor": ("optimizer: {floor: .nan}", "floor"),
    "no weight decay": ("optimizer: {weight_decay: .nan}", "weight_decay"),
    "no clip": ("optimizer: {clip: .nan}", "clip"),
    "no scale": ("loss: {reconstruction_scale: .inf}", "reconstruction_scale"),
    "no validation": ("data: {validation: .nan}", "validation"),
    "no temperature": ("training: {inverse_temperature: [.nan]}", "inverse_temperature"),
    "negative floor": ("optimizer: {floor: -1}", "floor"),
    "many processes": ("training: {devices: 1000000}", "devices"),
    "many threads": ("training: {threads: 1000000}", "threads"),
    "no data": ("data: {name: ''}", "data.name"),
    "bytes": ("description: !!binary aGVsbG8=", "no text, number, list or map"),
    "set": ("model: {options: {x: !!set {a, b}}}", "no text, number, list or map"),
    "date": ("description: 2026-01-01", "no text, number, list or map"),
    "number as key": ("model: {options: {1: 2}}", "which is no text"),
    "list as key": ("? [a, b]\n: c", "not YAML"),
    "null as key": ("model: {options: {~: 2}}", "which is no text"),
    "large": ("description: " + "x" * 200_000, "more than"),
    "many keys": ("model: {options: {" + ", ".join(f"k{n}: 1" for n in range(15_000)) + "}}", "more than"),
    "unknown key of 50 kB": ("k" * 50_000 + ": 1", "not YAML"),
    "unknown key of 500 letters": ("k" * 500 + ": 1", "no key"),
    "terminal": ('description: x\n"\\e]0;owned\\a": 1', "no key"),
    "empty": ("", "must be keys"),
    "null": ("null", "must be keys"),
    "empty list": ("[]", "must be keys"),
    "empty map": ("{}", "no recipe"),
    "number": ("5", "must be keys"),
    "text": ("hello", "must be keys"),
    "section of nothing": ("data:", "must be keys"),
    "options of text": ("model: {options: hello}", "model.options must be keys"),
    "options of a number": ("model: {options: 5}", "model.options must be keys"),
    "two documents": ("description: x\n---\ndescription: y", "not YAML"),
    "tabs": ("data:\n\tname: x", "not YAML"),
    "nul": ("description: a\0b", "not YAML"),
    "control": ("description: a\x1bb", "not YAML"),
    "names elsewhere": ("data: /etc/passwd", "must be keys"),
    "a value of the wrong kind": ("training: {epochs: {a: 1}}", "training.epochs"),
    "a truth as number": ("training: {epochs: yes}", "epochs"),
}


@pytest.mark.parametrize("name", TEXTS)
def test_texts_that_are_no_recipe(name, refused, tmp_path):
    text, words = TEXTS[name]
    (tmp_path / "r.yaml").write_text(text, encoding="utf-8")
    assert words in refused("train", "r.yaml", "--print-config")


BYTES = [b"\xff\xfe\0", b"\x80\x02}", b"PK\x03\x04", bytes(1000), b"description: \xe9"]


@pytest.mark.parametrize("content", BYTES)
def test_bytes_that_are_no_text(content, refused, tmp_path):
    (tmp_path / "r.yaml").write_bytes(content)
    refused("train", "r.yaml", "--print-config")


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="this system has no pipes with names")
def test_what_is_no_file(refused, tmp_path):
    os.mkfifo(tmp_path / "pipe.yaml")
    assert "a pipe" in refused("train", "pipe.yaml")
    (tmp_path / "folder.yaml").mkdir()
    assert "a folder" in refused("train", "folder.yaml")
    (tmp_path / "endless.yaml").symlink_to("/dev/zero")
    assert "device" in refused("train", "endless.yaml")
    refused("train", "no\x1b[31msuch")
    refused("train", "../recipes/quickstart")


def test_a_json_file_that_is_no_recipe(refused, tmp_path):
    (tmp_path / "numbers.json").write_text('{"accuracy": 0.9, "images": 10}')
    assert "no key 'accuracy'" in refused("train", "numbers.json")


def test_a_recipe_asks_for_no_download(refused, tmp_path):
    """The fuzzed folder is not made, and no address is asked for."""
    place = tmp_path.parent / "elsewhere"
    (tmp_path / "r.yaml").write_text(f"data: {{name: mnist, dir: {place}, download: true}}")
    assert "torchcaps data get mnist" in refused("train", "r.yaml")
    assert not place.exists()
    assert recipe_from_file("quickstart", read_keys(["--data.download", "true"])).data.download  # the person may


def test_options_that_have_no_options():
    with pytest.raises(RecipeError, match="has no options of its own"):
        recipe_from_file("quickstart", read_keys(["--model.options.decoder=[1]", "--model.options.decoder.x=1"]))
