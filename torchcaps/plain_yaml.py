"""YAML as far as plain data needs it. In a file of its own because PyYAML comes with an extra."""

from __future__ import annotations

from typing import Any

import yaml
from yaml.constructor import ConstructorError

MOST_LEVELS = 30


class PlainLoader(yaml.SafeLoader):
    """PyYAML's safe loader without aliases, which can stand for billions of values, and without a key twice."""

    _level = 0

    def compose_node(self, parent: Any, index: Any) -> Any:
        """A value, unless it stands for one elsewhere or lies too deep."""
        if self.check_event(yaml.events.AliasEvent):
            event = self.peek_event()  # type: ignore[no-untyped-call]
            raise ConstructorError(None, None, f"*{event.anchor} is an alias: write the value out", event.start_mark)
        self._level += 1
        if self._level > MOST_LEVELS:
            raise ConstructorError(None, None, "it is nested too deeply")
        try:
            return super().compose_node(parent, index)
        finally:
            self._level -= 1

    def construct_mapping(self, node: Any, deep: bool = False) -> Any:
        """A map in which no key comes twice: PyYAML would silently keep the last."""
        seen = set()
        for key, _ in node.value:
            if isinstance(key, yaml.ScalarNode) and key.value in seen:
                raise ConstructorError(None, None, f"the key {key.value!r} comes twice", key.start_mark)
            seen.add(key.value if isinstance(key, yaml.ScalarNode) else None)
        return super().construct_mapping(node, deep)
