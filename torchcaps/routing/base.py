"""What a routing module is."""

from __future__ import annotations

import copy
import functools
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.types import Device

from torchcaps.checks import require_count, require_float_type
from torchcaps.errors import InputError, InputTypeError, StateError
from torchcaps.ops.plan import Plan, option_names
from torchcaps.ops.precision import cast, exact
from torchcaps.ops.result import RoutingOutput
from torchcaps.ops.windows import Windows
from torchcaps.plain import Undescribed, as_json, describe, given_arguments
from torchcaps.routing.windows import route_each_window


def _option(name: str) -> property:
    """An option of a routing's plan as an attribute of the routing."""

    def get(self: Routing) -> Any:
        return getattr(self.plan, name)

    def put(self: Routing, value: Any) -> None:
        self.plan = replace(self.plan, **{name: value})

    return property(get, put, doc=f"``{name}`` of the plan.")


def _remember_arguments(constructor: Callable[..., None]) -> Callable[..., None]:
    """A constructor that keeps what it is called with, as plain data: nothing that cannot be copied or pickled."""

    @functools.wraps(constructor)
    def remember(self: Routing, *positional: Any, **named: Any) -> None:
        if "_given" not in self.__dict__:  # else this is called by a subclass, whose arguments are kept
            try:
                given = given_arguments(functools.partial(constructor, self), *positional, **named)
            except TypeError:  # they do not fit, as the constructor is about to say
                given = {}
            self.__dict__["_given"] = given
        constructor(self, *positional, **named)

    return remember


class Routing(nn.Module):
    """An algorithm that turns votes into parents, with its learned parameters.

    A layer calls :meth:`build` once with its sizes; parameters that depend on them are made there. Using one
    instance in two layers of the same sizes shares its parameters, as with any module.

    Subclasses implement :meth:`forward`, and :meth:`make_parameters` if they have any. One that looks at the children's
    poses beside their votes says so by :attr:`needs_poses` and takes them: ``forward(votes, activation, mask, trace,
    poses)``.
    """

    permutation_invariant: bool = True
    """False where the coupling belongs to a child's index, so that exchanging children changes the result."""

    couplings_sum_to_one: bool = True
    """False where a child may keep a part of itself, or give itself more than once."""

    exact_gradient: bool = True
    """False where a part of the computation is held constant on purpose."""

    competition: str = "types"
    """Among which parents a child on a grid chooses unless its layer says otherwise; see :meth:`route_windows`."""

    normalized_weights: bool = False
    """True where the algorithm assumes W_ij / ‖W_ij‖_F; capsule layers follow it unless told otherwise."""

    needs_poses: bool = False
    """True where the algorithm looks at the children's poses, too: ``forward`` is then given them as ``poses``."""

    activation_is_length: bool = True
    """False where a parent's activation is a number of its own and not the length of its pose."""

    plan: Plan
    """The options, where the algorithm has a plan for them; each of them is an attribute of the module as well."""

    def __init_subclass__(cls, plan: type[Plan] | None = None, **rest: Any) -> None:
        """``class DynamicRouting(Routing, plan=DynamicPlan)`` has that plan's options as attributes."""
        super().__init_subclass__(**rest)
        for name in option_names(plan) if plan is not None else ():
            setattr(cls, name, _option(name))
        if "__init__" in vars(cls):
            cls.__init__ = _remember_arguments(cls.__init__)  # type: ignore[method-assign]

    if TYPE_CHECKING:

        def __call__(
            self,
            votes: Tensor,
            activation: Tensor | None = None,
            mask: Tensor | None = None,
            trace: bool = False,
        ) -> RoutingOutput:
            """See :meth:`forward`."""

    def __init__(self) -> None:
        super().__init__()
        self._sizes: tuple[int | None, int, int] | None = None
        self._given: dict[str, Any] = self.__dict__.get("_given", {})

    @property
    def config(self) -> dict[str, Any]:
        """This routing as a mapping ``{"name": …, **options}`` of plain data: the options that it was made with.

        A layer or a recipe that is given the mapping makes the same routing, with new parameters.
        """
        from torchcaps.routing.registry import registered_name

        name = registered_name(self)
        if name is None:
            raise InputError(
                f"{type(self).__name__} has no name by which plain data could tell of it: register it with "
                '@register_routing("NAME").'
            )
        return {"name": name, **as_json(self._given)}

    def build(
        self,
        children: int | None,
        parents: int,
        size: int,
        *,
        device: Device = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        """Fix the sizes and make the parameters; a routing that was built before keeps those that it has.

        Args:
            children: their number; None: any number.
            parents: their number.
            size: of a parent's pose.
            device: of the parameters; None: as :meth:`make_parameters` makes them.
            dtype: of the parameters that are floating point numbers; None: likewise.
        """
        sizes = (children, parents, size)
        require_float_type(dtype)
        if self._sizes is None:
            with nullcontext() if device is None else torch.device(device):
                self.make_parameters(children, parents, size)
            if device is not None or dtype is not None:
                self.to(device=device, dtype=dtype)
            self._sizes = sizes
        elif self._sizes != sizes:
            raise InputError(
                f"this {type(self).__name__} already belongs to a layer with (children, parents, pose size) = "
                f"{self._sizes}; a layer with {sizes} needs its own instance."
            )

    def make_parameters(self, children: int | None, parents: int, size: int) -> None:
        """Make what is learned or kept; nothing by default."""

    def for_classes(self) -> Routing:
        """This routing as the layer of classes uses it: the same, unless an algorithm has another rule there."""
        return self

    def initial_std(self, children: int, parents: int, size: int) -> float:
        """Standard deviation with which a layer should draw its weights.

        With equal couplings s_j = (1/J) Σ_i û_ij. σ ∝ 1/√D would keep the length of the votes û the same in layers of
        every size, σ ∝ J/√(I·D) the length of the sums s. Too long votes polarise the coupling before anything is
        learned, too short sums leave every parent silent; the geometric mean of both rules, 0.74·√J/(I^¼·√D), avoids
        either. For the CapsNet of the paper it is the authors' 0.1.
        """
        return float(0.74 * parents**0.5 / (max(children, 1) ** 0.25 * size**0.5))

    def initial_matrix_std(self, children: int, parents: int, rows: int, columns: int) -> float:
        """The same for matrix poses, of which a number of a vote is made from one row only."""
        return self.initial_std(children, parents, rows * columns) * float(rows**0.5)

    @property
    def fused(self) -> bool:
        """Whether :meth:`route_linear` can do without storing votes."""
        return False

    def route_linear(
        self,
        poses: Tensor,
        weight: Tensor,
        activation: Tensor,
        mask: Tensor | None = None,
        coupling: bool = False,
    ) -> RoutingOutput:
        """Votes of fully connected children and their routing in one: for routings that are :attr:`fused`.

        Shapes:
            poses ``[B, I, d]``, weight ``[I, J, d, D]`` or ``[J, d, D]``, activation and mask ``[B, I]`` →
            pose ``[B, J, D]``, activation ``[B, J]``, coupling ``[B, I, J]`` if asked for.
        """
        raise InputTypeError(f"{type(self).__name__} is not fused: it routes votes.")

    def route_votes(
        self, votes: Tensor, poses: Tensor, activation: Tensor | None, mask: Tensor | None, trace: bool = False
    ) -> RoutingOutput:
        """Route votes ``[B, I, J, D]`` of children with poses ``[B, I, d]``, which only some algorithms look at.

        All in the votes' type, whatever autocast would choose.
        """
        more = {"poses": cast(poses, votes.dtype)} if self.needs_poses else {}
        with exact(votes):
            return self(votes, cast(activation, votes.dtype), mask, trace, **more)

    def route_windows(
        self,
        poses: Tensor,
        weight: Tensor,
        activation: Tensor,
        windows: Windows,
        *,
        shift: Tensor | None = None,
        mask: Tensor | None = None,
        compete: str = "types",
        coupling: bool = False,
        trace: bool = False,
    ) -> RoutingOutput:
        """Route the votes of the children in every window of a grid.

        Every window is a problem of its own here: a child shares itself out among the types of parents at each
        position, ``compete="types"``. A routing that can let it choose among all parents that see it overrides this.

        Shapes:
            those of :func:`torchcaps.ops.routed_em`.
        """
        if compete != "types":
            raise InputError(
                f"{type(self).__name__} routes every window on its own, compete='types'; "
                f"{compete!r} is known to EM routing only."
            )
        return route_each_window(
            self, poses, weight, activation, windows, shift=shift, mask=mask, coupling=coupling, trace=trace
        )

    def with_iterations(self, iterations: int | None) -> Routing:
        """This very routing, parameters and all, with another number of iterations (None: its own). What if it went on?

        A schedule that lists a value per iteration must be long enough, else a ValueError says so when it routes.
        """
        if iterations is None:
            return self
        if not hasattr(self, "iterations"):
            raise InputError(f"{type(self).__name__} has no iterations, so it cannot have another number of them.")
        require_count("iterations", iterations)
        other = copy.copy(self)
        other.iterations = iterations  # type: ignore[assignment] # not every Routing has them
        return other

    def require_built(self) -> None:
        """Raise unless the sizes are known."""
        if self._sizes is None:
            raise StateError(
                f"{type(self).__name__} has parameters whose sizes are not known yet: give it to a capsule layer, "
                "or call build(children, parents, size) first."
            )

    def forward(
        self,
        votes: Tensor,
        activation: Tensor | None = None,
        mask: Tensor | None = None,
        trace: bool = False,
    ) -> RoutingOutput:
        """Route votes ``[B, I, J, D]`` from children with activation and mask ``[B, I]``."""
        raise InputTypeError(f"{type(self).__name__} must implement forward(votes, activation, mask, trace).")


@describe.register(Routing)
def _(routing: Routing, _: str) -> Any:
    try:
        return routing.config
    except InputError as error:
        return Undescribed(str(error))
