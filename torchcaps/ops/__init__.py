"""Stateless numerics: squash, the routing algorithms on votes, and the clustering they come from.

Letters used throughout: B images, I children, J parents, d numbers in a child's pose, D in a parent's.
Every algorithm has a line-by-line reference in its folder, which the tests compare values and gradients with.
"""

from torchcaps.ops import flops  # noqa: F401 - tells torch what the ops cost
from torchcaps.ops.baselines import frozen_routing, random_coupling, random_routing, uniform_routing
from torchcaps.ops.conv import conv1d, conv2d
from torchcaps.ops.dynamic import RoutedOutput, dynamic_routing, routed_linear, routed_path, sample_parents
from torchcaps.ops.em import em_routing, routed_em
from torchcaps.ops.gmm import GaussianMixture, gaussian_mixture
from torchcaps.ops.kmeans import SoftKMeans, kmeans_routing, soft_kmeans
from torchcaps.ops.memory import empty_cache
from torchcaps.ops.optimized import optimized_routing
from torchcaps.ops.result import RoutingOutput, RoutingTrace, vector_output
from torchcaps.ops.schedules import Schedule, annealed, counting
from torchcaps.ops.squash import SQUASH_KINDS, length, squash
from torchcaps.ops.windows import Windows

__all__ = [
    "SQUASH_KINDS",
    "GaussianMixture",
    "RoutedOutput",
    "RoutingOutput",
    "RoutingTrace",
    "Schedule",
    "SoftKMeans",
    "Windows",
    "annealed",
    "conv1d",
    "conv2d",
    "counting",
    "dynamic_routing",
    "em_routing",
    "empty_cache",
    "frozen_routing",
    "gaussian_mixture",
    "kmeans_routing",
    "length",
    "optimized_routing",
    "random_coupling",
    "random_routing",
    "routed_em",
    "routed_linear",
    "routed_path",
    "sample_parents",
    "soft_kmeans",
    "squash",
    "uniform_routing",
    "vector_output",
]
