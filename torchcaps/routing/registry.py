"""How names become routings."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, TypeVar

from torch import Tensor

from torchcaps.checks import require_choice
from torchcaps.errors import InputError, InputTypeError
from torchcaps.ops.result import RoutingOutput
from torchcaps.plain import shorten
from torchcaps.routing.base import Routing


class FunctionRouting(Routing):
    """A plain routing function as a module; what :func:`register_routing` makes of a function."""

    if TYPE_CHECKING:

        def __call__(
            self,
            votes: Tensor,
            activation: Tensor | None = None,
            mask: Tensor | None = None,
            trace: bool = False,
            poses: Tensor | None = None,
        ) -> RoutingOutput:
            """See :meth:`forward`."""

    def __init__(self, function: Callable[..., RoutingOutput], **options: Any) -> None:
        super().__init__()
        known = inspect.signature(function).parameters
        self.needs_poses = "poses" in known
        if not any(parameter.kind is parameter.VAR_KEYWORD for parameter in known.values()):
            for option in options:
                require_choice(
                    f"option of routing {function.__name__}", option, set(known) - _CALL_ARGUMENTS - {"poses"}
                )
        self.function = function
        self.options = options
        self._given.pop("function")  # plain data tells of it by the name under which it is registered

    def forward(
        self,
        votes: Tensor,
        activation: Tensor | None = None,
        mask: Tensor | None = None,
        trace: bool = False,
        poses: Tensor | None = None,
    ) -> RoutingOutput:
        """Call the function."""
        more = {"poses": poses} if self.needs_poses else {}
        return self.function(votes, activation=activation, mask=mask, trace=trace, **more, **self.options)

    def extra_repr(self) -> str:
        """Show the function's name and options."""
        return ", ".join([self.function.__name__, *(f"{k}={v!r}" for k, v in self.options.items())])


RoutingLike = str | Routing | Mapping[str, Any]
"""A registered name, an instance, or ``{"name": …, **options}`` as in a recipe."""

_CALL_ARGUMENTS = {"votes", "activation", "mask", "trace"}
"""Of every routing function; one that needs the children's poses takes ``poses`` as well."""
_routings: dict[str, Callable[..., Any]] = {}
"""Classes and functions by their names."""
_Registered = TypeVar("_Registered", bound=Callable[..., Any])


def register_routing(name: str) -> Callable[[_Registered], _Registered]:
    """Make a routing available by name, in every layer and model: a decorator.

    It takes a function ``f(votes, *, activation, mask, trace, **options)`` that returns a
    :class:`~torchcaps.ops.RoutingOutput`, or a :class:`Routing` subclass if there is something to learn::

        @register_routing("mean")
        def mean_routing(votes, *, activation=None, mask=None, trace=False):
            coupling = votes.new_full(votes.shape[:3], 1 / votes.shape[2])
            if mask is not None:
                votes = votes.masked_fill(~mask[:, :, None, None], 0)
                coupling = coupling * mask[:, :, None]
            pose = squash(torch.einsum("bij,bijd->bjd", coupling, votes))
            return vector_output(pose, coupling)

        CapsuleLinear(..., routing="mean")

    :func:`torchcaps.testing.assert_routing` checks what every routing must fulfil.
    """

    def register(routing: _Registered) -> _Registered:
        if name in _routings:
            raise InputError(f"a routing named {name!r} is already registered; choose another name.")
        if isinstance(routing, type):
            if not issubclass(routing, Routing):
                raise InputTypeError(f"{routing.__name__} must be a subclass of torchcaps.routing.Routing.")
        else:
            missing = _CALL_ARGUMENTS - set(inspect.signature(routing).parameters)
            if missing:
                raise InputTypeError(
                    f"a routing function takes (votes, *, activation, mask, trace, **options); "
                    f"{routing.__name__} lacks {', '.join(sorted(missing))}."
                )
        _routings[name] = routing
        return routing

    return register


def unregister_routing(name: str) -> None:
    """Forget a routing, for instance one that was registered in a notebook cell that is run again."""
    require_choice("routing", name, _routings)
    del _routings[name]


def registered_name(routing: Routing) -> str | None:
    """The name under which the kind of a routing is registered, None if it is not."""
    kind = routing.function if isinstance(routing, FunctionRouting) else type(routing)
    return next((name for name, registered in _routings.items() if registered is kind), None)


def list_routings() -> list[str]:
    """The names of all registered routings."""
    return sorted(_routings)


def resolve_routing(routing: RoutingLike) -> Routing:
    """A routing from its name, from ``{"name": …, **options}``, or the instance itself."""
    if isinstance(routing, Routing):
        return routing
    if isinstance(routing, Mapping):
        options = dict(routing)
        name = options.pop("name", None)
        if name is None:
            raise InputError(
                f"a routing given as a mapping needs a 'name', such as dynamic or em; got {shorten(dict(routing))}."
            )
    elif isinstance(routing, str):
        name, options = routing, {}
    else:
        raise InputTypeError(f"a routing is a name, a mapping with a name, or a Routing instance, got {routing!r}.")
    require_choice("routing", name, _routings)
    kind = _routings[name]
    try:
        made: Routing = kind(**options) if isinstance(kind, type) else FunctionRouting(kind, **options)
        return made
    except TypeError as error:
        raise InputTypeError(f"routing {name!r} cannot be made with {options}: {error}") from error
