"""A decoder made by hand, which draws a bar: each number of its pose does one thing, and is found to do it."""

import pytest
import torch

from torchcaps.analysis.perturbation import STEPS, describe_dimension, perturb_images, pose_effects, properties
from torchcaps.layers import ReconstructionDecoder

SIZE, NUMBERS, CLASSES = 48, 5, 3


class Bars(ReconstructionDecoder):
    """Draws a bar: number 0 shears it, 1 shifts it to the right, 2 thickens it, the others do nothing.

    The pose of class k is read from row k alone; a second row that is not zero would add to it and be seen.
    """

    def __init__(self) -> None:
        super().__init__(CLASSES, NUMBERS, (1, SIZE, SIZE), hidden=())

    def decode(self, pose: torch.Tensor) -> torch.Tensor:
        slant, shift, thicker = pose.sum(dim=-2)[..., :3, None, None].unbind(dim=-3)
        rows = (torch.arange(SIZE) - (SIZE - 1) / 2)[:, None]
        columns = torch.arange(SIZE) - (SIZE - 1) / 2
        across = (columns + slant * rows - 8 * shift).abs()
        inside = (2.5 + 4 * thicker - across).clamp(0, 1)  # a bar of width 4 + 8·number
        return (inside * (rows.abs() <= 15)).unsqueeze(-3)


def poses(images: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Poses of all classes, of which one is to be decoded; of the others nothing may be seen."""
    torch.manual_seed(1)
    return 0.1 * torch.randn(images, CLASSES, NUMBERS), torch.arange(images) % CLASSES


def test_steps_are_those_of_the_paper():
    assert STEPS == (-0.25, -0.2, -0.15, -0.1, -0.05, 0, 0.05, 0.1, 0.15, 0.2, 0.25)


def test_one_number_of_one_capsule_is_changed_and_all_others_are_zero():
    decoder = ReconstructionDecoder(CLASSES, NUMBERS, (2, 6, 7), hidden=[11])
    pose, classes = poses(4)
    found = perturb_images(decoder, pose, classes, steps=(-0.1, 0.0, 0.3))
    assert found.shape == (4, NUMBERS, 3, 2, 6, 7)
    for image in range(4):
        for number in range(NUMBERS):
            for at, step in enumerate((-0.1, 0.0, 0.3)):
                alone = torch.zeros(CLASSES, NUMBERS)
                alone[classes[image]] = pose[image, classes[image]]
                alone[classes[image], number] += step
                torch.testing.assert_close(found[image, number, at], decoder.decode(alone).detach())


def test_effects_have_the_right_name_sign_and_size():
    pose, classes = poses(12)
    effects = pose_effects(Bars(), pose, classes)
    change = {name: effects.change[:, at] for at, name in enumerate(effects.names)}
    assert effects.change.shape == effects.spread.shape == effects.effect.shape == effects.agreement.shape == (5, 7)
    assert float(change["slant"][0]) == pytest.approx(0.5, abs=0.02)
    assert float(change["x"][1]) == pytest.approx(4, abs=0.02)
    assert float(change["thickness"][2]) == pytest.approx(3.1, abs=0.3)  # 4 wider: w·31/(w + 31) for w = 2 … 6
    assert float(change["width"][2]) == pytest.approx(4, abs=0.4)  # soft edges make thin bars seem wider
    assert float(change["ink"][2]) == pytest.approx(4 * 30, rel=0.05)
    assert effects.change[3:].abs().max() < 1e-3, "the others do nothing"
    assert float(change["x"][0]) == pytest.approx(0, abs=0.02)
    for number, name in enumerate(("slant", "x", "thickness")):
        assert float(effects.agreement[number, effects.names.index(name)]) == 1


def test_an_effect_is_measured_in_natural_standard_deviations():
    pose, classes = poses(12)
    one, all_of_them = Bars(), torch.arange(12) % CLASSES
    natural = one.decode(torch.randn(200, 1, NUMBERS) * 0.2)[:, 0]
    effects = pose_effects(one, pose, all_of_them, natural)
    torch.testing.assert_close(effects.effect, effects.change / properties(natural).std(dim=0, correction=0))
    own = pose_effects(one, pose, classes)
    alone = pose * torch.nn.functional.one_hot(classes, CLASSES)[..., None]
    natural_of_own = properties(one.decode(alone)[:, 0]).std(dim=0, correction=0)
    slant = own.names.index("slant")
    torch.testing.assert_close(own.effect[:, slant], own.change[:, slant] / natural_of_own[slant])


def test_dimensions_are_described_in_words():
    pose, classes = poses(12)
    natural = Bars().decode(torch.randn(200, 1, NUMBERS) * torch.tensor([0.2, 0.2, 0.05, 1, 1]))[:, 0]
    effects = pose_effects(Bars(), pose, classes, natural)
    assert describe_dimension(effects, 0).startswith("slant (+0.5")
    assert describe_dimension(effects, 0).endswith(", 100 % of images)")
    assert describe_dimension(effects, 1).startswith("x (+4.0")
    assert " pixels" in describe_dimension(effects, 1)
    assert "thickness (+" in describe_dimension(effects, 2, most=3)
    assert describe_dimension(effects, 3) == describe_dimension(effects, 4) == "no clear effect"


def test_what_differs_from_image_to_image_is_no_clear_effect():
    """A number that shifts one half of the images to the right and the other half to the left."""

    class Undecided(Bars):
        def decode(self, pose):
            pose = pose.clone()
            pose[..., 1] *= pose[..., 4].sign()
            return super().decode(pose)

    pose, classes = poses(8)
    pose[..., 4] = torch.tensor([1.0, -1.0]).repeat(4)[:, None]
    effects = pose_effects(Undecided(), pose, classes, natural=Bars().decode(torch.randn(50, 1, NUMBERS) * 0.2)[:, 0])
    x = effects.names.index("x")
    assert float(effects.spread[1, x]) == pytest.approx(4, abs=0.05)
    assert float(effects.agreement[1, x]) <= 0.5
    assert describe_dimension(effects, 1) == "no clear effect"


def test_a_single_image_works_and_has_no_scale_of_its_own():
    pose, classes = poses(1)
    effects = pose_effects(Bars(), pose, classes)
    assert torch.isfinite(torch.stack(effects[1:5])).all()
    assert torch.isfinite(effects.fading).all()
    assert (effects.effect == 0).all()
    assert (effects.spread == 0).all()
    natural = Bars().decode(torch.randn(50, 1, NUMBERS) * 0.2)[:, 0]
    assert "slant" in describe_dimension(pose_effects(Bars(), pose, classes, natural), 0)


def test_many_images_give_what_they_give_in_parts():
    pose, classes = poses(40)
    whole = pose_effects(Bars(), pose, classes)
    halves = [pose_effects(Bars(), pose[part], classes[part]).change for part in (slice(0, 20), slice(20, 40))]
    torch.testing.assert_close(whole.change, torch.stack(halves).mean(dim=0), atol=1e-4, rtol=1e-4)


def test_bad_input_is_refused():
    pose, classes = poses(2)
    with pytest.raises(ValueError, match="one class index per image"):
        perturb_images(Bars(), pose, classes[:1])
    with pytest.raises(ValueError, match="0 … 2"):
        perturb_images(Bars(), pose, classes + 5)
    with pytest.raises(ValueError, match="at least one"):
        pose_effects(Bars(), pose[:0], classes[:0])


def test_pictures_that_fade_are_said_to_fade():
    class Fading(Bars):
        def decode(self, pose):
            images = super().decode(pose)
            brightness = (0.75 - pose.sum(dim=-2)[..., 3]).clamp(0, 1)  # number 3 takes the light away
            return images * brightness[..., None, None, None]

    pose, classes = poses(4)
    effects = pose_effects(Fading(), pose, classes)
    assert float(effects.fading[0]) < 0.05
    assert float(effects.fading[3]) > 0.4
    assert "fades by" in describe_dimension(effects, 3)
    assert "fades" not in describe_dimension(effects, 0)
