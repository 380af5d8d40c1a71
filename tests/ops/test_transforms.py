"""What torch's transforms make of the fused ops, with every option: the numbers of plain torch, or a sentence."""

import warnings

import pytest
import torch
from torch.autograd import forward_ad

from torchcaps import TorchcapsError
from torchcaps.ops import Windows, routed_em, routed_linear, squash
from torchcaps.ops.backends import use_backend
from torchcaps.ops.constants import constant
from torchcaps.ops.dynamic.op import routed_linear_op
from torchcaps.ops.dynamic.plan import DynamicPlan
from torchcaps.ops.squash import length

OPTIONS = {
    "dynamic": {},
    "one": {"iterations": 1},
    "shared": {},
    "optimized": {"routing": "optimized", "alpha": [2.0, 1.0, 0.5]},
    "replace": {"update": "replace"},
    "last": {"gradient": "last"},
    "leaky": {"leaky": True, "squash": "exponential"},
    "masked": {},
    "amend": {"amend": True},
    "amend-masked": {"amend": True},
    "bias": {"squash": "half"},
    "sampled": {},
    "em": {},
    "em-types": {"compete": "types"},
    "em-padded": {},
    "em-masked": {"variance_floor": 1e-2},
}


def problem(name, dtype=torch.float64, seed=0):
    """A function of some tensors, and the tensors."""
    g = torch.Generator().manual_seed(seed)

    def draw(*shape):
        return torch.randn(*shape, generator=g, dtype=torch.float64).to(dtype)

    options = OPTIONS[name]
    if name.startswith("em"):
        windows = Windows((4, 3), (3, 2), (2, 1), (1, 0) if name == "em-padded" else (0, 0))
        mask = torch.rand(2, 12, 3, generator=g) < 0.8 if name == "em-masked" else None
        tensors = [draw(2, 12, 3, 2, 3), draw(6, 3, 2, 3, 2), draw(2, 12, 3).sigmoid(), draw(2), draw(2)]
        if mask is not None:
            mask[:, :, 0] = True

        def em(*inputs):
            return routed_em(*inputs, windows, mask=mask, mass=10.0, inverse_temperature=0.05, **options)[:2]

        return em, tensors
    mask = torch.tensor([[True] * 4 + [False], [True] * 5]) if "masked" in name else None
    tensors = [draw(2, 5, 3), draw(*(() if name == "shared" else (5,)), 4, 3, 2), draw(2, 5).sigmoid(), draw(4, 2)]
    parents = torch.tensor([0, 2, 3]) if name == "sampled" else None

    def dynamic(poses, weight, activation, bias):
        given = {"activation": activation, "mask": mask, "parents": parents}
        return routed_linear(poses, weight, bias=bias if name == "bias" else None, **given, **options)[:2]

    return dynamic, tensors


def total(function):
    return lambda *inputs: sum((part * (1 + part)).sum() for part in function(*inputs))


def plainly(call):
    with use_backend("plain"):
        return call()


def close(actual, expected, **tolerance):
    torch.testing.assert_close(actual, expected, **tolerance)


every_option = pytest.mark.parametrize("name", OPTIONS)
with_exact_gradient = pytest.mark.parametrize("name", [name for name in OPTIONS if name != "last"])


@every_option
def test_plain_torch_gives_the_same_values_and_gradients(name):
    function, tensors = problem(name)
    leaves = [tensor.clone().requires_grad_() for tensor in tensors]

    def run():
        value = total(function)(*leaves)
        return value, *torch.autograd.grad(value, leaves, allow_unused=True)

    close(run(), plainly(run))


@every_option
def test_plain_torch_calls_no_op_of_ours(name):
    class Listening(torch.utils._python_dispatch.TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            assert func.namespace != "torchcaps"
            return func(*args, **(kwargs or {}))

    function, tensors = problem(name)
    with Listening(), use_backend("plain"):
        total(function)(*[tensor.requires_grad_() for tensor in tensors]).backward()


@with_exact_gradient
def test_forward_mode_against_finite_differences(name):
    function, tensors = problem(name)
    tangents = [torch.randn_like(tensor) for tensor in tensors]
    value, slope = torch.func.jvp(total(function), tuple(tensors), tuple(tangents))
    close(value, total(function)(*tensors))
    step = 1e-6
    ends = [
        total(function)(*(tensor + sign * step * tangent for tensor, tangent in zip(tensors, tangents, strict=True)))
        for sign in (1, -1)
    ]
    close(slope, (ends[0] - ends[1]) / (2 * step), rtol=1e-5, atol=1e-6)
    with forward_ad.dual_level():
        duals = [forward_ad.make_dual(*pair) for pair in zip(tensors, tangents, strict=True)]
        close(forward_ad.unpack_dual(total(function)(*duals)).tangent, slope)


@every_option
def test_reverse_mode_transforms(name):
    function, tensors = problem(name)
    every = tuple(range(len(tensors)))
    leaves = [tensor.clone().requires_grad_() for tensor in tensors]
    value = total(function)(*leaves)
    expected = [
        torch.zeros_like(leaf) if grad is None else grad
        for leaf, grad in zip(leaves, torch.autograd.grad(value, leaves, allow_unused=True), strict=True)
    ]
    close(list(torch.func.grad(total(function), every)(*tensors)), expected)
    if name not in ("dynamic", "em"):
        return
    torch._dynamo.reset()
    compiled = torch.compile(torch.func.grad(total(function), every), backend="eager", fullgraph=True)
    close(list(compiled(*tensors)), expected)


@with_exact_gradient
def test_second_derivatives(name):
    """Along one direction: reverse over reverse, forward over reverse, and differences of the kernel's gradients."""
    function, tensors = problem(name)
    leaves = [tensor.clone().requires_grad_() for tensor in tensors]
    tangents = [torch.randn_like(tensor) for tensor in tensors]

    def gradients(*inputs, create_graph=False):
        options = {"allow_unused": True, "materialize_grads": True, "create_graph": create_graph}
        return torch.autograd.grad(total(function)(*inputs), inputs, **options)

    first = gradients(*leaves, create_graph=True)
    along = sum((grad * tangent).sum() for grad, tangent in zip(first, tangents, strict=True))
    second = torch.autograd.grad(along, leaves, allow_unused=True, materialize_grads=True)
    every = tuple(range(len(tensors)))
    forward = torch.func.jvp(torch.func.grad(total(function), every), tuple(tensors), tuple(tangents))[1]
    close(list(second), list(forward), rtol=1e-6, atol=1e-8)
    step = 1e-6
    ends = []
    for sign in (1, -1):
        moved = (tensor + sign * step * tangent for tensor, tangent in zip(tensors, tangents, strict=True))
        ends.append(gradients(*(tensor.requires_grad_() for tensor in moved)))
    differences = [(after - before) / (2 * step) for after, before in zip(*ends, strict=True)]
    close(list(second), differences, rtol=1e-4, atol=1e-5)


@every_option
def test_gradients_of_many_outputs_at_once(name):
    function, tensors = problem(name)

    def pose(poses):
        return function(poses, *tensors[1:])[0]

    one_by_one = torch.autograd.functional.jacobian(pose, tensors[0])
    close(torch.autograd.functional.jacobian(pose, tensors[0], vectorize=True), one_by_one)
    close(torch.func.jacrev(pose)(tensors[0]), one_by_one)


@every_option
@pytest.mark.parametrize("batched", ["poses", "weights", "everything"])
def test_vmap_is_a_loop_without_the_loop(name, batched):
    function, tensors = problem(name)
    chosen = {"poses": (0, 2), "weights": (1,), "everything": (0, 1, 2, 3, 4)}[batched]
    dims = tuple(0 if i in chosen else None for i in range(len(tensors)))
    more = [
        torch.stack([tensor, 0.9 * tensor, 1.1 * tensor]) if dim == 0 else tensor
        for tensor, dim in zip(tensors, dims, strict=True)
    ]
    expected = [function(*(t if d is None else t[n] for t, d in zip(more, dims, strict=True))) for n in range(3)]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = torch.vmap(function, dims)(*more)
    for part, each in zip(found, zip(*expected, strict=True), strict=True):
        close(part, torch.stack(each))


@every_option
def test_gradients_for_each_image(name):
    function, tensors = problem(name)
    poses, weight, activation, *rest = tensors
    if "masked" in name:
        return  # the mask is for two images

    def loss(weight, pose, there):
        return total(function)(pose[None], weight, there[None], *rest)

    found = torch.vmap(torch.func.grad(loss), (None, 0, 0))(weight, poses, activation)
    expected = torch.stack([torch.func.grad(loss)(weight, poses[i], activation[i]) for i in range(2)])
    close(found, expected)


def test_an_op_in_a_graph_refuses_forward_mode_with_a_sentence():
    class Layer(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("weight", torch.randn(5, 4, 3, 2, generator=torch.Generator().manual_seed(0)))

        def forward(self, poses):
            return routed_linear(poses, self.weight).pose

    poses = torch.rand(2, 5, 3)
    program = torch.export.export(Layer(), (poses,)).module()
    with pytest.raises(TorchcapsError, match=r'no forward-mode derivative.*use_backend\("plain"\)'):
        torch.func.jvp(program, (poses,), (poses,))
    with use_backend("plain"):
        plain = torch.export.export(Layer(), (poses,)).module()
    expected = torch.func.jvp(Layer(), (poses,), (poses,))
    close(torch.func.jvp(plain, (poses,), (poses,)), expected)
    assert expected[1].abs().max() > 0.01


def test_a_compiled_function_follows_the_backend():
    poses, weight = torch.rand(2, 5, 3), torch.randn(5, 4, 3, 2)
    seen = []

    def listening(graph, _):
        seen.append({str(node.target).split(".")[0] for node in graph.graph.nodes if node.op == "call_function"})
        return graph.forward

    compiled = torch.compile(lambda poses: routed_linear(poses, weight).pose, backend=listening, fullgraph=True)
    fused = compiled(poses)
    close(plainly(lambda: compiled(poses)), fused)
    assert [any("torchcaps" in name for name in names) for names in seen] == [True, False]


def test_an_op_alone_under_vmap():
    poses, weight, text = torch.rand(3, 2, 5, 3), torch.randn(3, 5, 4, 3, 2), DynamicPlan().text
    for dims in ((0, None), (None, 0), (0, 0)):
        given = [poses if dims[0] == 0 else poses[0], weight if dims[1] == 0 else weight[0]]
        found = torch.vmap(lambda p, w: routed_linear_op(p, w, None, None, text), dims)(*given)
        for n in range(3):
            one = [tensor[n] if dim == 0 else tensor for tensor, dim in zip(given, dims, strict=True)]
            close([part[n] for part in found], list(routed_linear_op(*one, None, None, text)))


@pytest.mark.parametrize("kind", ["sabour", "exponential", "half", "unit", "none"])
def test_the_zero_vector_has_derivatives_of_every_order(kind):
    vectors = torch.tensor([[0.0, 0.0], [3.0, 4.0]], dtype=torch.float64, requires_grad=True)
    (first,) = torch.autograd.grad(squash(vectors, kind).sum() + length(vectors).sum(), vectors, create_graph=True)
    (second,) = torch.autograd.grad(first.square().sum(), vectors)
    assert first.isfinite().all()
    assert second.isfinite().all()
    assert (second[0] == 0).all()


def test_absent_children_have_second_derivatives():
    function, tensors = problem("em")
    tensors[2][:, :, 0] = 0  # activation
    tensors[2][1] = 0
    every = tuple(range(5))
    tangents = tuple(torch.ones_like(tensor) for tensor in tensors)
    second = torch.func.jvp(torch.func.grad(total(function), every), tuple(tensors), tangents)[1]
    assert all(part.isfinite().all() for part in second)
    leaves = [tensor.clone().requires_grad_() for tensor in tensors]
    fused = torch.autograd.grad(total(function)(*leaves), leaves)
    close(list(fused), list(torch.func.grad(total(function), every)(*tensors)))


def test_tables_are_kept_for_each_device_and_never_while_one_looks():
    made = []

    def make(key, device):
        made.append(key)
        return torch.full((2,), key, device=device)

    cpu, meta = torch.device("cpu"), torch.device("meta")
    with torch.inference_mode():
        first = constant(make, 3, cpu)
    assert constant(make, 3, cpu) is first
    assert constant(make, 3, meta).is_meta
    assert made == [3, 3]
    (first.float() * torch.ones(2, requires_grad=True)).sum().backward()  # not one of inference mode
    with torch._subclasses.FakeTensorMode():
        assert constant(make, 3, cpu) is not first
    assert constant(make, 3, cpu) is first
