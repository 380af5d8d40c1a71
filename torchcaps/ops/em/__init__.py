"""EM routing (Hinton et al. 2018)."""

from torchcaps.ops.em import cpu, torch  # noqa: F401 - the backends
from torchcaps.ops.em.grid import COMPETITIONS, routed_em
from torchcaps.ops.em.reference import em_routing_reference
from torchcaps.ops.em.routing import em_routing

__all__ = ["COMPETITIONS", "em_routing", "em_routing_reference", "routed_em"]
