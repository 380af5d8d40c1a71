"""Torch's transforms by name: each is a function of a subject that raises unless the results are right."""

import batches
import derivatives
import graphs
import modules
import precision

FSDP2 = "FSDP2 on gloo"
"""The only one that is not a function of a subject: all are sharded in one pair of processes, see sharding.py."""
TRANSFORMS = {
    "func.grad": derivatives.func_grad,
    "jacrev": derivatives.jacrev,
    "jvp": derivatives.jvp,
    "jacfwd": derivatives.jacfwd,
    "dual numbers": derivatives.dual_numbers,
    "jacobian(vectorize)": derivatives.vectorized_jacobian,
    "vmap": batches.vmap_inputs_and_parameters,
    "vmap(grad)": batches.vmap_grad,
    "double backward": derivatives.double_backward,
    "hessian": derivatives.hessian,
    "checkpoint": modules.checkpoint,
    "autocast bf16": precision.autocast_bf16,
    "bf16": precision.bf16,
    "half": precision.half,
    "B=0": batches.no_images,
    "B=1": batches.one_image,
    "compile": graphs.compile_whole,
    "export": graphs.export,
    "export strict": graphs.export_strict,
    "AOTInductor": graphs.aot_inductor,
    "trace": graphs.trace,
    "functional_call": modules.functional_call,
    "deepcopy": modules.deepcopy,
    "pickle": modules.pickled,
    "meta": modules.meta,
    "FakeTensor": modules.fake_tensor,
    "skip_init": modules.skip_init,
    "flop counter": graphs.flop_counter,
}
