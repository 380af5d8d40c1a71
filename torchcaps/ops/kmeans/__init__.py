"""Soft k-means: as a routing, and alone."""

from torchcaps.ops.kmeans.clustering import SoftKMeans, soft_kmeans
from torchcaps.ops.kmeans.reference import kmeans_routing_reference, soft_kmeans_reference
from torchcaps.ops.kmeans.routing import kmeans_routing

__all__ = ["SoftKMeans", "kmeans_routing", "kmeans_routing_reference", "soft_kmeans", "soft_kmeans_reference"]
