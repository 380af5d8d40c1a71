"""Names of recipes, models, data sets and routings that there are not, and what does not go together."""

import pytest

from torchcaps import list_datasets, list_models, list_pretrained, list_routings
from torchcaps.experiments import list_experiments
from torchcaps.training.recipes import list_recipes


def misspell(name):
    return name[:-2] + name[-1]


def unknown(names):
    return [name for name in names if len(name) > 3 and misspell(name) not in names]


@pytest.mark.parametrize("name", unknown(list_recipes()))
def test_recipes(name, refused):
    message = refused("train", misspell(name))
    assert "Did you mean '" in message


@pytest.mark.parametrize("name", unknown(list_models()))
def test_models(name, refused):
    assert "Did you mean" in refused("train", "--model.name", misspell(name))


@pytest.mark.parametrize("command", ["train --data.name", "evaluate mnist --data", "data check"])
@pytest.mark.parametrize("name", unknown(list_datasets()))
def test_data_sets(name, command, refused):
    message = refused(*command.split(), misspell(name))
    assert "unknown data set" in message
    assert repr(name) in message


@pytest.mark.parametrize("name", unknown(list_routings()))
def test_routings(name, refused):
    message = refused("train", "--model.options.routing", misspell(name))
    assert repr(name) in message
    assert "--model.options.routing" in message


@pytest.mark.parametrize("command", ["evaluate", "predict", "explain", "explore"])
@pytest.mark.parametrize("name", list_pretrained())
def test_pretrained(name, command, refused):
    assert "Did you mean '" in refused(command, misspell(name))


@pytest.mark.parametrize("name", unknown(list_experiments()))
def test_experiments(name, refused):
    assert repr(name) in refused("reproduce", misspell(name))


TOGETHER = [
    ("train --model.options.routing.iterations 2", "such as dynamic or em"),
    ("train --model.options.routing {'name':'dynamic','iterations':0}", "at least 1"),
    ("train --model.options.routing {'name':'dynamic','iterations':'many'}", "whole number"),
    ("train --model.options.routing {'name':'dynamic','itrations':2}", "Did you mean 'iterations'"),
    ("train --model.options.routing {'name':'em','iterations':1000000}", "at most 1,000"),
    ("train --model.options.routing [dynamic]", "a routing is"),
    ("train --model.options.routing 5", "a routing is"),
    ("train --model.options.routng em", "Did you mean 'routing'"),
    ("train --model.options.decoder hello", "a list of widths"),
    ("train --model.options.decoder [a]", "integer"),
    ("train --model.options.decoder [0]", "at least 1"),
    ("train --model.options.decoder 5", "a list of widths"),
    ("train --model.options.shared maybe", "shared must be true or false"),
    ("train --model.options.shared 3", "shared must be true or false"),
    ("train --model.options.squash 3", "squash"),
    ("train --model.options.squash sabur", "Did you mean 'sabour'"),
    ("train --model.options.objects 0", "at least 1"),
    ("train --model.options.objects 11", "among 10"),
    ("train --model.options.objects two", "objects must be"),
    ("train --model.options [1]", "keys with values"),
    ("train --model.options {a:", "not YAML"),
    ("train --model.options.x [", "not YAML"),
    ("train --model.options.x !!python/name:os.system", "not YAML"),
    ("train --model.name cnn-small --loss.kind spread", "--loss.kind cross-entropy"),
    ("train --model.name cnn-small", "--loss.kind cross-entropy"),
    ("train --loss.kind spread --data.name multi-mnist", "one class index"),
    ("train --loss.margin_schedule by-epoch", "spread"),
    ("train --model.name text-cnn", "reads words"),
    ("train text --model.name capsnet", "reads images"),
    ("train --data.name mr-mini", "reads images"),
    ("train text --data.name mnist-mini", "reads words"),
    ("train --training.inverse_temperature [1,2]", "which this model does not have"),
    ("train --training.keep best --data.validation 0", "needs validation"),
    ("train --training.keep best --data.validation 0.00001", "Raise --data.validation"),
    ("train --training.devices 3", "multiple of the 3 processes"),
    ("train --training.nodes 100000", "100000 processes cannot share"),
    ("train --training.accelerator gpu", "torch finds none here"),
    ("train --data.crop 20", "give shift 0"),
    ("train --data.crops 13", "--data.crop"),
    ("train --data.crop 40 --data.shift 0", "larger than the images"),
    ("train --data.shift 28", "out of sight"),
    ("train --data.shift 1000000000", "out of sight"),
    ("train --data.resize 1000000000", "GB"),
    ("train text --text.vector_size 1000000000", "GB"),
    ("train --data.name multi-mnist --data.mirror true", "own canvas"),
    ("train --data.name multi-mnist --data.options.base cifar", "base must be"),
    ("train --data.name multi-mnist --data.options.bse mnist", "Did you mean 'base'"),
    ("train --data.options.image_size 20", "no option 'image_size'"),
    ("train --data.name in-memory", "not kept"),
    ("train --resume x --optimizer.lr 3", "another experiment"),
    ("train quickstart --resume x", "give neither"),
    ("train --output x --resume x", "give neither"),
    ("train --changed-data", "goes with --resume"),
    ("train --resume no/where", "not a run folder"),
    ("train --resume .", "not a run folder"),
    ("train no/where", "no recipe"),
    ("train ../quickstart", "no recipe"),
    ("evaluate mnist", "--data"),
    ("evaluate mnist --data mr-mini", "reads images"),
    ("evaluate mnist --data cifar10", "data get cifar10"),
    ("evaluate mnist --data mnist-mini --split all", "has the splits"),
    ("evaluate mnist --data mnist-mini --split familiar", "has the splits"),
    ("evaluate mnist --data mnist-mini --new-items", "--new-items"),
    ("evaluate mnist --data mnist-mini --crops 13", "crops 13"),
    ("evaluate mnist --data in-memory", "not kept"),
    ("predict mnist", "which images"),
    ("predict mnist --text hello", "reads images"),
    ("predict mnist a.png --words", "reads images"),
    ("predict mnist a.png --class 3", "reads images"),
    ("predict mnist a.png --by couplings", "reads images"),
    ("explain mnist", "--output"),
    ("explain mnist --output x", "--data"),
    ("explain mnist --output x --data mr-mini", "reads images"),
    ("explain mnist --output x --data mnist-mini --images 0", "--images is"),
    ("explain mnist --output x --data mnist-mini --images -5", "--images is"),
    ("explain mnist --output x --data mnist-mini --seed -5", "--seed is"),
    ("explain mnist --output x --data mnist-mini --seed 99999999999999999999", "--seed is"),
    ("explain mnist --output /dev/null/x --data mnist-mini", "cannot be made"),
    ("explore --port 99999999", "a port is"),
    ("explore --port -1", "a port is"),
    ("explore --host 300.1.1.1", "cannot listen"),
    ("explore --host a_b", "cannot listen"),
    ("explore --allow-host http://x", "without http"),
    ("explore .", "not a run folder"),
    ("reproduce clustering --epochs 3", "trains nothing"),
    ("reproduce clustering --data mnist", "trains nothing"),
    ("reproduce routings --epochs 0", "at least 1"),
    ("reproduce routings --epochs -1", "at least 1"),
    ("reproduce routings --seeds -1", "--seeds"),
    ("reproduce routings --seeds 1 99999999999", "--seeds"),
    ("reproduce routings --data cifar", "--data must be"),
    ("reproduce routings --output /dev/null", "cannot be made"),
    ("reproduce routings --data-dir nowhere", "data get mnist"),
]


@pytest.mark.parametrize(("line", "told"), TOGETHER, ids=lambda text: text[:60])
def test_what_does_not_go_together(line, told, refused):
    assert told in refused(*(word.replace("':", "': ") for word in line.split(" ")))
