"""Gaussian mixture by EM."""

from torchcaps.ops.gmm.clustering import GaussianMixture, gaussian_mixture
from torchcaps.ops.gmm.reference import gaussian_mixture_reference

__all__ = ["GaussianMixture", "gaussian_mixture", "gaussian_mixture_reference"]
