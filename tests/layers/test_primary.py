import pytest
import torch

from torchcaps.layers import PrimaryCapsules1d, PrimaryCapsules2d
from torchcaps.ops import squash


def test_each_capsule_is_one_type_at_one_position_by_an_explicit_loop():
    layer = PrimaryCapsules2d(3, types=4, dim=5, kernel_size=(3, 2), stride=(2, 1), padding=(1, 0)).double()
    image = torch.randn(2, 3, 7, 6, dtype=torch.float64)
    out = layer(image)
    padded = torch.nn.functional.pad(image, (0, 0, 1, 1))
    assert out.pose.shape == (2, 4, 5, 4, 5)
    for row in range(4):
        for column in range(5):
            window = padded[:, :, 2 * row : 2 * row + 3, column : column + 2]
            for kind in range(4):
                channels = slice(5 * kind, 5 * kind + 5)
                weight, bias = layer.conv.weight[channels], layer.conv.bias[channels]
                s = torch.einsum("bchw,dchw->bd", window, weight) + bias
                torch.testing.assert_close(out.pose[:, row, column, kind], squash(s))
    torch.testing.assert_close(out.activation, out.pose.norm(dim=-1))


def test_one_dimension_is_the_two_dimensional_layer_of_height_one():
    line = PrimaryCapsules1d(3, types=2, dim=4, kernel_size=3, stride=2)
    plane = PrimaryCapsules2d(3, types=2, dim=4, kernel_size=(1, 3), stride=(1, 2))
    plane.conv.weight.data = line.conv.weight.data[:, :, None].clone()
    plane.conv.bias.data = line.conv.bias.data.clone()
    features = torch.randn(2, 3, 9)
    torch.testing.assert_close(line(features).pose, plane(features[:, :, None]).pose[:, 0])


@pytest.mark.parametrize("garbage", [7.0, float("nan")])
def test_padding_never_influences_a_capsule(garbage):
    layer = PrimaryCapsules1d(3, types=2, dim=4, kernel_size=3)
    sentence = torch.randn(1, 3, 6)
    alone = layer(sentence)
    padded = torch.cat([sentence, torch.full((1, 3, 4), garbage)], dim=2)
    mask = torch.arange(10)[None] < 6
    out = layer(padded, mask)
    assert out.mask.shape == out.activation.shape == (1, 8, 2)
    assert out.mask[0, :, 0].tolist() == [True] * 4 + [False] * 4
    out.pose[out.mask].sum().backward()
    assert layer.conv.weight.grad.isfinite().all()
    torch.testing.assert_close(out.pose[:, :4], alone.pose)


def test_masks_in_two_dimensions():
    layer = PrimaryCapsules2d(1, types=1, dim=2, kernel_size=2)
    mask = torch.ones(1, 3, 3, dtype=torch.bool)
    mask[0, 2, 2] = False
    assert layer(torch.randn(1, 1, 3, 3), mask).mask[0, ..., 0].tolist() == [[True, True], [True, False]]


def test_bad_input():
    layer = PrimaryCapsules2d(3, types=2, dim=4, kernel_size=5)
    with pytest.raises(ValueError, match=r"\[batch, 3, height, width\], got \(2, 1, 9, 9\)"):
        layer(torch.rand(2, 1, 9, 9))
    with pytest.raises(ValueError, match=r"window of \(5, 5\) over features of size \(4, 9\), which is too small"):
        layer(torch.rand(2, 3, 4, 9))
    with pytest.raises(TypeError, match="features must be a floating point tensor, got torch.uint8"):
        layer(torch.zeros(2, 3, 9, 9, dtype=torch.uint8))
    with pytest.raises(ValueError, match=r"mask must have shape \(2, 9, 9\)"):
        layer(torch.rand(2, 3, 9, 9), torch.ones(2, 9, dtype=torch.bool))
    with pytest.raises(ValueError, match="types must be at least 1"):
        PrimaryCapsules1d(3, types=0, dim=4)
    with pytest.raises(ValueError, match=r"\[batch, 3, length\]"):
        PrimaryCapsules1d(3, types=1, dim=4)(torch.rand(2, 3, 4, 4))
    with pytest.raises(ValueError, match="a mask and the convolution's own padding do not go together"):
        PrimaryCapsules1d(3, types=1, dim=4, kernel_size=3, padding=1)(
            torch.rand(2, 3, 5), torch.ones(2, 5, dtype=torch.bool)
        )
    with pytest.raises(ValueError, match="padding must be a number of zeros, got 'same'"):
        PrimaryCapsules1d(3, types=1, dim=4, kernel_size=3, padding="same")
