"""The convolution: values and gradients against its definition and against torch, on every path."""

import gc
import random

import pytest
import torch
import torch.nn.functional as F
from paths import HAS_KERNEL, REASON, VARIANTS, library, on_path

from torchcaps.layers import Conv1d, Conv2d
from torchcaps.ops import conv1d, conv2d, empty_cache
from torchcaps.ops.conv import conv2d_reference
from torchcaps.ops.conv import cpu as kernels
from torchcaps.ops.conv.backend import Pass
from torchcaps.ops.conv.rule import FEW, FOURIER, LENGTHS, Way, choose_way, list_ways
from torchcaps.ops.conv.sizes import Sizes, sizes_of
from torchcaps.ops.memory import KeptMemory, kept

needs_kernel = pytest.mark.skipif(not HAS_KERNEL, reason=f"no kernel: {REASON}")
pytestmark = needs_kernel
PAPER = Sizes(128, 256, (20, 20), 256, (9, 9), (2, 2), (0, 0))
SHAPES = [
    # batch, channels, image, out channels, kernel, stride, padding
    (2, 5, (7, 9), 3, (3, 3), (1, 1), (0, 0)),
    (1, 1, (1, 1), 1, (1, 1), (1, 1), (0, 0)),
    (3, 17, (8, 8), 33, (5, 5), (2, 2), (0, 0)),
    (2, 16, (9, 6), 16, (9, 4), (2, 3), (3, 1)),
    (1, 3, (11, 5), 20, (2, 5), (3, 1), (0, 2)),
    (2, 4, (6, 6), 7, (1, 1), (3, 2), (0, 0)),
    (2, 20, (1, 30), 5, (1, 7), (1, 2), (0, 3)),
    (1, 33, (25, 26), 2, (3, 3), (1, 1), (1, 1)),
    (2, 2, (12, 12), 18, (11, 11), (1, 1), (5, 5)),
]
PASSES = ("forward", "images", "weight")


@pytest.fixture(autouse=True)
def nothing_is_initialised(monkeypatch):
    """Memory that is given out holds NaN: what is read before it is written shows."""
    empty = KeptMemory.empty
    monkeypatch.setattr(KeptMemory, "empty", lambda *given: empty(*given).fill_(float("nan")))
    empty_cache()


def made(shape, dtype=torch.float32, seed=0):
    """Images, weight, bias, a gradient of the result, and stride and padding."""
    batch, channels, image, out, kernel, stride, padding = shape
    sizes = Sizes(*shape)
    generator = torch.Generator().manual_seed(seed)
    shapes = (batch, channels, *image), (out, channels, *kernel), (out,), (batch, out, *sizes.out)
    tensors = [torch.randn(size, generator=generator, dtype=torch.float64).to(dtype) for size in shapes]
    return *tensors, stride, padding


def gradients(function, images, weight, bias, grad, stride, padding):
    """The result, and the gradients of images, weight and bias."""
    leaves = [tensor.detach().requires_grad_() for tensor in (images, weight, bias)]
    result = function(*leaves, stride, padding)
    return [result.detach(), *torch.autograd.grad(result, leaves, grad)]


def assert_near(found, expected, tolerance):
    for one, other in zip(found, expected, strict=True):
        one, other = one.detach(), other.detach()
        assert one.shape == other.shape
        scale = other.abs().max().clamp(min=1e-30)
        assert float((one.double() - other.double()).abs().max() / scale) < tolerance


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_values_and_gradients_are_those_of_the_definition(shape, variant):
    expected = gradients(conv2d_reference, *made(shape, torch.float64))
    with on_path(variant):
        assert_near(gradients(conv2d, *made(shape)), expected, 5e-6)


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("last", [False, True])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_every_way_is_exact_in_float64(shape, last, variant, monkeypatch):
    """The products are those of the definition, whatever the tile: what is left is rounding."""
    images, weight, bias, grad, stride, padding = made(shape, torch.float64)
    if last:
        images, grad = (maps.contiguous(memory_format=torch.channels_last) for maps in (images, grad))
    expected = gradients(conv2d_reference, images, weight, bias, grad, stride, padding)
    sizes, backend = sizes_of(images, weight, stride, padding), kernels.KernelConvolution()
    with on_path(variant):
        for way in random.Random(str(shape)).sample(
            every := list(list_ways(Pass("forward", sizes))), min(5, len(every))
        ):
            monkeypatch.setattr(backend, "_way", lambda *_, way=way: way)
            result = backend.forward(sizes, images, weight, bias, last)
            dweight, dbias = backend.weight_gradient(sizes, grad, images, weight, True)
            found = [result, dweight, grad.sum(dim=(0, 2, 3)) if dbias is None else dbias]
            assert_near(found, [expected[0], *expected[2:]], 1e-12)
            if way.name == FOURIER:
                assert_near([backend.image_gradient(sizes, grad, images, weight)], [expected[1]], 1e-12)


def random_shape(dice):
    kernel = (dice.randint(1, 11), dice.randint(1, 11))
    padding = tuple(dice.randint(0, size // 2) for size in kernel)
    image = tuple(dice.randint(max(1, k - 2 * p), 26) for k, p in zip(kernel, padding, strict=True))
    channels = (1, 2, 3, 4, 5, 15, 16, 17, 31, 40)
    stride = (dice.randint(1, 3), dice.randint(1, 3))
    return dice.randint(1, 4), dice.choice(channels), image, dice.choice(channels), kernel, stride, padding


@pytest.mark.parametrize("seed", range(40))
def test_random_sizes_agree_with_torch(seed):
    shape = random_shape(random.Random(seed))
    exact = gradients(F.conv2d, *made(shape, torch.float64, seed))
    with on_path(VARIANTS[-1]):
        assert_near(gradients(conv2d, *made(shape, seed=seed)), exact, 1e-5)


@pytest.mark.parametrize("name", PASSES)
def test_large_images_and_weights_are_taken_in_parts(name, monkeypatch):
    shape = (7, 40, (14, 14), 24, (5, 5), (1, 1), (2, 2))
    exact = gradients(F.conv2d, *made(shape, torch.float64))
    monkeypatch.setattr(kernels, "MOST_ROOM", 1 << 17)
    monkeypatch.setattr(kernels, "MOST_SPECTRUM", 1 << 17)
    with on_path(VARIANTS[-1]):
        assert_near(gradients(conv2d, *made(shape)), exact, 1e-5)


def test_results_are_the_same_bit_for_bit():
    given = made((6, 32, (20, 20), 48, (9, 9), (2, 2), (0, 0)))
    with on_path(VARIANTS[-1]):
        first = gradients(conv2d, *given)
        for _ in range(5):
            empty_cache()
            assert all(torch.equal(*pair) for pair in zip(first, gradients(conv2d, *given), strict=True))


def test_error_is_not_larger_than_torchs():
    given, exact = made((32, 64, (20, 20), 64, (9, 9), (2, 2), (0, 0))), None
    exact = gradients(F.conv2d, *(tensor.double() if torch.is_tensor(tensor) else tensor for tensor in given))
    with on_path(VARIANTS[-1]):
        ours = gradients(conv2d, *given)
    for mine, torchs, true in zip(ours, gradients(F.conv2d, *given), exact, strict=True):
        assert (mine - true).norm() <= 2 * (torchs - true).norm()


# Which way


def test_the_papers_layer_takes_fourier_products():
    for name in PASSES:
        way = choose_way(Pass(name, PAPER), 2)
        assert way is not None
        assert way == Way(FOURIER, (10, 10))


def test_torch_serves_what_is_small():
    for sizes in (
        PAPER._replace(batch=1),
        Sizes(1, 1, (8, 8), 16, (1, 1), (1, 1), (0, 0)),
        Sizes(100, 64, (8, 8), 64, (1, 1), (1, 1), (0, 0)),
    ):
        assert choose_way(Pass("forward", sizes), 2) is None
    assert choose_way(Pass("forward", PAPER._replace(batch=1)), 2, asked=True) is not None


def test_large_results_of_grey_pictures_take_the_kernel_of_their_own():
    first = Sizes(128, 1, (28, 28), 256, (9, 9), (1, 1), (0, 0))
    assert choose_way(Pass("forward", first), 2) == Way(FEW)


def test_the_library_has_the_lengths_of_the_rule():
    images, weight, bias, *_ = made((1, 2, (1, 1), 2, (1, 1), (1, 1), (0, 0)))
    sizes = Sizes(1, 2, (1, 1), 2, (1, 1), (1, 1), (0, 0))
    backend = kernels.KernelConvolution()
    for length in range(1, 24):
        backend._way = lambda *_, length=length: Way(FOURIER, (length, length))
        if length in LENGTHS:
            backend.forward(sizes, images, weight, bias, False)
        else:
            with pytest.raises(RuntimeError, match="no transforms of"):
                backend.forward(sizes, images, weight, bias, False)


# What it gives


def test_memory_format_follows_the_input_as_in_torch():
    images, weight, bias, _, stride, padding = made((2, 16, (8, 8), 16, (5, 5), (1, 1), (0, 0)))
    with on_path(VARIANTS[-1]):
        assert conv2d(images, weight, bias, stride, padding).is_contiguous()
        last = images.contiguous(memory_format=torch.channels_last)
        assert conv2d(last, weight, bias).is_contiguous(memory_format=torch.channels_last)
        asked = conv2d(images, weight, bias, channels_last=True)
        assert asked.is_contiguous(memory_format=torch.channels_last)
        assert torch.allclose(asked, F.conv2d(images, weight, bias), atol=1e-4)


def test_a_number_that_is_not_finite_shows_in_its_image_only():
    images, weight, bias, _, stride, padding = made((3, 16, (12, 12), 16, (5, 5), (1, 1), (0, 0)))
    images[1, 3, 4, 5] = float("nan")
    with on_path(VARIANTS[-1]):
        found = conv2d(images, weight, bias, stride, padding)
    assert found[0].isfinite().all()
    assert found[2].isfinite().all()
    assert found[1, :, 0:5, 1:6].isnan().all()


@pytest.mark.parametrize("channels", [2, 16])
def test_what_no_window_sees_does_not_matter(channels):
    images, weight, bias, grad, stride, padding = made((1, channels, (10, 10), 8, (3, 3), (2, 2), (0, 0)))
    expected = gradients(F.conv2d, images, weight, bias, grad, stride, padding)
    images[..., 9], images[..., 9, :] = float("nan"), float("inf")
    with on_path(VARIANTS[-1]):
        found = gradients(conv2d, images, weight, bias, grad, stride, padding)
    assert_near(found, expected, 1e-5)
    assert not found[1][..., 9].any()


@pytest.mark.parametrize("last", [False, True])
def test_results_may_be_changed_in_place(last):
    images, weight, bias, *_ = made((20, 16, (36, 36), 40, (5, 5), (1, 1), (0, 0)))  # results of more than a megabyte
    weight.requires_grad_()
    with on_path(VARIANTS[-1]):
        conv2d(images, weight, bias, channels_last=last).relu_().sum().backward()
    expected = torch.autograd.grad(F.conv2d(images, weight, bias).relu().sum(), weight)
    assert_near([weight.grad], expected, 1e-4)


def test_zero_images_give_the_bias():
    images, weight, bias, *_ = made((2, 16, (8, 8), 16, (5, 5), (1, 1), (0, 0)))
    with on_path(VARIANTS[-1]):
        found = conv2d(torch.zeros_like(images), weight, bias)
    assert torch.equal(found, bias[None, :, None, None].expand_as(found))


# What is kept


@pytest.mark.parametrize("change", ["add_", "data", "numpy"])
def test_a_weight_that_changes_is_transformed_again(change):
    images, weight, *_ = made((2, 16, (8, 8), 16, (5, 5), (1, 1), (0, 0)))
    with on_path(VARIANTS[-1]), torch.no_grad():
        conv2d(images, weight)
        if change == "add_":
            weight.add_(1)
        elif change == "data":
            weight.data += 1  # which autograd's versions do not count
        else:
            weight.numpy()[...] += 1
        assert_near([conv2d(images, weight)], [F.conv2d(images, weight)], 1e-5)


def test_a_spectrum_is_kept_and_goes_with_its_weight():
    images, weight, *_ = made((2, 64, (12, 12), 64, (5, 5), (1, 1), (0, 0)))
    weight = torch.nn.Parameter(weight)
    with on_path(VARIANTS[-1]):
        with torch.no_grad():
            conv2d(images, weight)
            conv2d(images, weight)
        assert len(kernels.spectra._kept) == 1
    del weight
    gc.collect()
    assert not kernels.spectra._kept


def test_nothing_is_kept_where_no_gradient_is_wanted():
    images, weight, bias, *_ = made((2, 16, (8, 8), 16, (5, 5), (1, 1), (0, 0)))
    with on_path(VARIANTS[-1]):
        assert conv2d(images, weight, bias).grad_fn is None
        with torch.no_grad():
            assert conv2d(images.requires_grad_(), weight, bias).grad_fn is None


def test_memory_is_given_out_again():
    memory = KeptMemory(most=3 << 20)
    first = memory.empty((1 << 18,))
    address, view = first.data_ptr(), first[5:7]
    del first
    assert memory.waiting() == 0  # a view still holds it
    del view
    assert memory.waiting() == 2 << 20
    assert memory.empty((1 << 18,)).data_ptr() == address
    many = [memory.empty((1 << 18,)) for _ in range(3)]
    assert len({one.data_ptr() for one in many}) == 3
    del many
    assert memory.waiting() <= 3 << 20
    memory.release()
    assert memory.waiting() == 0
    assert memory.empty((10,)).numel() == 10  # small ones are torch's


# What falls back, and what torch refuses


@pytest.mark.parametrize(
    "options",
    [{"groups": 2}, {"dilation": 2}, {"padding": "same"}, {"stride": (2,)}, {"dtype": torch.float64}],
    ids=str,
)
def test_torch_serves_everything_else(options):
    dtype = options.pop("dtype", torch.float32)
    images, weight = (
        torch.randn(2, 4, 9, 9, dtype=dtype),
        torch.randn(6, 4 // options.get("groups", 1), 3, 3, dtype=dtype),
    )
    with on_path(VARIANTS[-1]):
        found = conv2d(images, weight, **options)
    assert torch.equal(found, F.conv2d(images, weight, **options))


def test_errors_are_torchs():
    with on_path(VARIANTS[-1]), pytest.raises(RuntimeError, match="expected input"):
        conv2d(torch.randn(1, 3, 8, 8), torch.randn(4, 5, 3, 3))
    with pytest.raises(RuntimeError, match="Kernel size can't be greater"):
        conv2d(torch.randn(1, 3, 2, 2), torch.randn(4, 3, 3, 3))
    assert conv2d(torch.randn(0, 3, 8, 8), torch.randn(4, 3, 3, 3)).shape == (0, 4, 6, 6)


def test_autocast_is_torchs():
    images, weight, *_ = made((2, 16, (8, 8), 16, (5, 5), (1, 1), (0, 0)))
    with on_path(VARIANTS[-1]), torch.autocast("cpu", torch.bfloat16):
        assert conv2d(images, weight).dtype == torch.bfloat16


# torch's transforms


def test_compile_and_export():
    images, *_ = made((2, 16, (8, 8), 16, (5, 5), (1, 1), (0, 0)))
    layer = Conv2d(16, 16, 5)

    def loss(images):
        return layer(images).square().sum()

    with on_path(VARIANTS[-1]):
        compiled = torch.compile(loss, backend="aot_eager", fullgraph=True, dynamic=True)
        for batch in (2, 5):
            given = torch.randn(batch, 16, 8, 8)
            assert_near([compiled(given)[None]], [loss(given)[None]], 1e-5)
            compiled(given).backward()
        program = torch.export.export(layer, (images,), dynamic_shapes=({0: torch.export.Dim("batch")},))
        given = torch.randn(7, 16, 8, 8)
        assert_near([program.module()(given)], [F.conv2d(given, layer.weight, layer.bias)], 1e-5)


@pytest.mark.parametrize("last", [False, True])
def test_opcheck(last):
    images, weight, bias, grad, stride, padding = made((2, 16, (8, 7), 20, (5, 4), (1, 2), (1, 0)))
    if last:
        images = images.contiguous(memory_format=torch.channels_last)
    with on_path(VARIANTS[-1]):
        leaves = [tensor.requires_grad_() for tensor in (images, weight, bias)]
        tests = ("test_schema", "test_autograd_registration", "test_faketensor", "test_aot_dispatch_dynamic")
        torch.library.opcheck(torch.ops.torchcaps.conv2d.default, (*leaves, stride, padding, last), test_utils=tests)
        bare = [tensor.detach() for tensor in (grad, images, weight)]
        for wanted in ([True, True, True], [False, True, False]):
            torch.library.opcheck(torch.ops.torchcaps.conv2d_backward.default, (*bare, stride, padding, wanted))


def test_vmap_jvp_and_second_derivatives():
    images, weight, bias, *_ = made((3, 6, (8, 8), 5, (3, 3), (1, 1), (1, 1)))
    with on_path(VARIANTS[-1]):
        each = torch.vmap(lambda one: conv2d(one[None], weight, bias, 1, 1)[0])(images)
        assert_near([each], [F.conv2d(images, weight, bias, 1, 1)], 1e-5)
        weights = torch.stack([weight, 2 * weight])
        each = torch.vmap(lambda one: conv2d(images, one, None, 1, 1))(weights)
        assert_near([each[1]], [2 * F.conv2d(images, weight, None, 1, 1)], 1e-5)
        given = (images,), (torch.ones_like(images),)
        found = torch.func.jvp(lambda x: conv2d(x, weight), *given)[1]
        assert_near([found], [torch.func.jvp(lambda x: F.conv2d(x, weight), *given)[1]], 1e-5)

        def penalty(convolve):
            x = images.detach().requires_grad_()
            (first,) = torch.autograd.grad(convolve(x, weight).square().sum(), x, create_graph=True)
            return torch.autograd.grad(first.square().sum(), x)[0]

        assert_near([penalty(conv2d)], [penalty(F.conv2d)], 1e-5)


# The modules


@pytest.mark.parametrize(("ours", "torchs"), [(Conv2d, torch.nn.Conv2d), (Conv1d, torch.nn.Conv1d)])
def test_modules_are_drop_in(ours, torchs):
    options = {"stride": 2, "padding": 1}
    mine, theirs = ours(16, 24, 5, **options), torchs(16, 24, 5, **options)
    assert isinstance(mine, torchs)
    assert repr(mine) == repr(theirs)
    theirs.load_state_dict(mine.state_dict())
    given = torch.randn(3, 16, *([20] * (2 if ours is Conv2d else 1)))
    with on_path(VARIANTS[-1]):
        found = mine(given)
        found.sum().backward()
    theirs(given).sum().backward()
    assert_near([found], [theirs(given)], 1e-5)
    assert_near([mine.weight.grad, mine.bias.grad], [theirs.weight.grad, theirs.bias.grad], 1e-5)


@pytest.mark.parametrize("mode", ["reflect", "circular"])
def test_other_paddings_are_torchs(mode):
    layer = Conv2d(4, 4, 3, padding=1, padding_mode=mode)
    assert layer(torch.randn(1, 4, 6, 6)).shape == (1, 4, 6, 6)


def test_conv1d_agrees_with_torch():
    images, weight, bias = torch.randn(4, 20, 50), torch.randn(30, 20, 7), torch.randn(30)
    with on_path(VARIANTS[-1]):
        assert_near([conv1d(images, weight, bias, 2, 3)], [F.conv1d(images, weight, bias, 2, 3)], 1e-5)
        assert_near([conv1d(images, weight, bias, (1,), (0,))], [F.conv1d(images, weight, bias)], 1e-5)
    assert conv1d(images, weight, padding="same").shape == (4, 30, 50)


def test_the_library_knows_the_fields():
    assert library.mismatch(kernels.CALL, kernels.FIELDS) is None
    assert kept.waiting() >= 0
