import pytest
import torch

from torchcaps import create_model, list_models
from torchcaps.models import CapsNet, parameter_count, register_model
from torchcaps.models.convolution import Conv


def count(name, *arguments, **options):
    with torch.device("meta"):
        return parameter_count(create_model(name, *arguments, **options))


def test_a_deep_stem_is_given_as_numbers_and_wrong_ones_are_named():
    model = create_model(
        "capsnet-deep", (1, 36, 36), stem=[[48, 5, 2], [96, 3, 2], [128, 3]], primary=[128, 3], objects=2
    )
    assert model.primary_capsules(torch.zeros(1, 1, 36, 36)).pose.shape == (1, 3, 3, 16, 8)
    assert sum(isinstance(layer, torch.nn.BatchNorm2d) for layer in model.stem) == 3
    for wrong in ([[48]], [[48, 5, 0]], [[48, 5, 2, 1, 1]], [[48, 5.0]]):
        with pytest.raises(ValueError, match="stem takes convolutions as"):
            create_model("capsnet-deep", stem=wrong)
    with pytest.raises(ValueError, match="primary takes"):
        create_model("capsnet-deep", primary=[64, -1])


def test_the_papers_network_has_exactly_its_parameters():
    assert count("capsnet") == 8_215_568
    assert count("capsnet", decoder=False) == 6_804_224
    assert count("capsnet", (1, 36, 36)) == 11_361_808


def test_the_papers_baseline_has_its_parameters():
    assert count("cnn-baseline") == 35_445_522  # "35.4M"


def test_the_small_models_have_the_parameters_that_the_docs_say():
    assert count("capsnet-small") == 300_944
    assert count("capsnet-deep") == 641_584
    assert count("cnn-small") == 300_941
    stereo, single = (2, 32, 32), (1, 32, 32)
    assert count("matrix-capsnet-small", single, 5) == 241_706
    assert count("cnn-matched", single, 5) == 241_743
    assert count("matrix-capsnet", stereo, 5) == 317_194
    assert count("matrix-capsnet", single, 5) == 316_394
    assert count("matrix-capsnet", stereo, 5, channels=64, types=(8, 16, 16)) == 68_754


@pytest.mark.parametrize(
    ("shape", "classes"), [((1, 28, 28), 10), ((3, 32, 32), 10), ((1, 36, 36), 10), ((2, 17, 40), 5), ((1, 8, 8), 10)]
)
def test_cnn_small_has_the_parameters_of_capsnet_small(shape, classes):
    assert abs(count("cnn-small", shape, classes) / count("capsnet-small", shape, classes) - 1) < 0.05


@pytest.mark.parametrize("name", list_models("images"))
@pytest.mark.parametrize(
    ("shape", "classes"), [((1, 28, 28), 10), ((3, 32, 32), 4), ((2, 17, 23), 3), ((1, 8, 40), 2), ((1, 1, 1), 2)]
)
def test_any_image_shape_and_number_of_classes(name, shape, classes):
    with torch.device("meta"):
        output = create_model(name, shape, classes)(torch.rand(2, *shape))
    assert output.scores.shape == (2, classes)
    if output.reconstruction is not None:
        assert output.reconstruction.shape == (2, *shape)
    if output.capsules is not None:
        assert output.capsules.pose.shape[:2] == (2, classes)
        assert output.capsules.pose[0, 0].numel() == 16


def test_small_images_are_centred_on_the_least_canvas():
    model = create_model("capsnet-small", (1, 8, 20), 3).eval()
    images = torch.rand(2, 1, 8, 20)
    canvas = torch.zeros(2, 1, 17, 20)
    canvas[:, :, 4:12] = images
    large = create_model("capsnet-small", (1, 17, 20), 3).eval()
    large.stem[0].load_state_dict(model.stem[1].state_dict())
    large.stem[2].load_state_dict(model.stem[3].state_dict())
    large.primary.load_state_dict(model.primary.state_dict())
    torch.testing.assert_close(large.primary_capsules(canvas).pose, model.primary_capsules(images).pose)


def test_primary_capsules_of_the_paper():
    model = create_model("capsnet")
    primary = model.primary_capsules(torch.rand(1, 1, 28, 28))
    assert primary.pose.shape == (1, 6, 6, 32, 8)
    assert model.class_capsules.in_capsules == 1152


def test_training_decodes_the_target_and_evaluation_the_longest():
    model = create_model("capsnet-small", (1, 16, 16), 5, objects=2).eval()
    images, target = torch.rand(3, 1, 16, 16), torch.tensor([[0, 1], [2, 3], [4, 0]])
    output = model(images, target)
    assert output.reconstruction.shape == (3, 2, 1, 16, 16)
    torch.testing.assert_close(output.reconstruction, model.decoder(output.capsules, target))
    longest = output.scores.topk(2).indices
    torch.testing.assert_close(model(images).reconstruction, model.decoder(output.capsules, longest))
    assert create_model("capsnet-small", (1, 16, 16), 5, decoder=False)(images).reconstruction is None


def test_routing_by_name_mapping_and_instance():
    from torchcaps.routing import EMRouting

    for routing, iterations in (
        ("em", 3),
        ({"name": "em", "iterations": 2}, 2),
        (EMRouting(iterations=4), 4),
    ):
        model = create_model("capsnet-small", (1, 16, 16), 3, routing=routing)
        assert model.class_capsules.routing.iterations == iterations
    assert create_model("capsnet-small", shared=True).class_capsules.weight.dim() == 3


def test_bad_input_teaches():
    with pytest.raises(ValueError, match=r"unknown model 'capsnett'. Did you mean 'capsnet'"):
        create_model("capsnett")
    with pytest.raises(ValueError, match=r"input_shape of capsnet must be \(channels, height, width\), got \(28, 28\)"):
        create_model("capsnet", (28, 28))
    with pytest.raises(ValueError, match=r"input_shape of capsnet must be \(channels, height, width\), got 28"):
        create_model("capsnet", 28)
    with pytest.raises(ValueError, match="primary channels that are a multiple"):
        CapsNet((1, 28, 28), 3, stem=[Conv(4, 3)], primary=Conv(60, 3), primary_dim=8, class_dim=4)
    assert count("capsnet-small", decoder=(32,)) < count("capsnet-small")
    with pytest.raises(ValueError, match="classes must be at least 2, got 1"):
        create_model("capsnet", classes=1)
    with pytest.raises(ValueError, match="unknown option of model 'capsnet' 'rooting'. Did you mean 'routing'"):
        create_model("capsnet", rooting="em")
    with pytest.raises(ValueError, match="unknown routing 'dynamics'. Did you mean 'dynamic'"):
        create_model("capsnet-small", routing="dynamics")
    with pytest.raises(ValueError, match="cannot show 4 objects of different classes among 3"):
        create_model("capsnet-small", classes=3, objects=4)
    model = create_model("capsnet-small")
    with pytest.raises(ValueError, match=r"images of shape \[batch, 1, 28, 28\], got \(2, 28, 28\)"):
        model(torch.rand(2, 28, 28))
    with pytest.raises(TypeError, match="images must be a floating point tensor, got torch.uint8"):
        model(torch.zeros(2, 1, 28, 28, dtype=torch.uint8))
    with pytest.raises(ValueError, match="already registered"):
        register_model("capsnet")(CapsNet)
