"""Errors of what is drawn, what they are compared with, and the words that they get."""

import pytest
import torch

from torchcaps.analysis.reconstruction import compare_errors, mean_image_error, pixel_errors


@pytest.mark.parametrize(
    ("error", "other", "words"),
    [
        (0.0, 0.05, "clearly better (100 % less error)"),
        (0.019, 0.05, "clearly better (62 % less error)"),
        (0.04, 0.05, "clearly better (20 % less error)"),
        (0.0401, 0.05, "a little better (20 % less error)"),
        (0.0455, 0.05, "a little better (9 % less error)"),
        (0.0474, 0.05, "a little better (5 % less error)"),
        (0.0476, 0.05, "no better"),
        (0.05, 0.05, "no better"),
        (0.0524, 0.05, "no better"),
        (0.0526, 0.05, "worse by 5 %"),
        (0.086, 0.05, "worse by 72 %"),
        (0.1, 0.05, "worse by 100 %"),
        (1.0, 0.0005, "worse by 199,900 %"),
        (0.0, 0.0, "no better"),
        (0.1, 0.0, "worse"),
    ],
)
def test_the_words_follow_the_numbers(error, other, words):
    assert compare_errors(error, other) == words


def test_bars_do_not_count():
    generator = torch.Generator().manual_seed(0)
    drawn, targets = torch.rand(2, 5, 3, 8, 8, generator=generator)
    content = torch.ones(5, 1, 8, 8, dtype=torch.bool)
    content[:3, :, :2], content[:3, :, -2:] = False, False
    content[3:, :, :, :1], content[3:, :, :, -1:] = False, False
    errors = pixel_errors(drawn, targets, content)
    assert errors[0] == pytest.approx(float((drawn[0, :, 2:6] - targets[0, :, 2:6]).square().mean()))
    assert errors[4] == pytest.approx(float((drawn[4, ..., 1:7] - targets[4, ..., 1:7]).square().mean()))
    everything = torch.ones_like(content)
    assert torch.allclose(pixel_errors(drawn, targets, everything), pixel_errors(drawn, targets))


def test_the_mean_image_is_that_of_the_images_that_have_a_place():
    """By a loop: at each place the mean of all other images that are not black bars there."""
    generator = torch.Generator().manual_seed(0)
    images = torch.rand(4, 2, 6, 6, generator=generator)
    content = torch.ones(4, 1, 6, 6, dtype=torch.bool)
    content[0, :, :2], content[1, :, :2], content[2, :, :1], content[3, :, :, 0] = False, False, False, False
    expected = []
    for index in range(4):
        errors = []
        for row in range(6):
            for column in range(6):
                others = [n for n in range(4) if n != index and content[n, 0, row, column]]
                if content[index, 0, row, column] and others:
                    mean = images[others, :, row, column].mean(dim=0)
                    errors += (images[index, :, row, column] - mean).square().tolist()
        expected.append(sum(errors) / len(errors))
    assert mean_image_error(images, content) == pytest.approx(sum(expected) / 4, rel=1e-5)
    assert mean_image_error(images, torch.ones_like(content)) == pytest.approx(mean_image_error(images), rel=1e-5)


def test_without_another_image_there_is_no_mean():
    alone = torch.zeros(2, 1, 4, 4, dtype=torch.bool)
    alone[0, :, :2], alone[1, :, 2:] = True, True
    assert mean_image_error(torch.rand(2, 1, 4, 4), alone) is None
    assert mean_image_error(torch.rand(1, 1, 4, 4)) is None
