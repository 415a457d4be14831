"""A pass of torch's compiler that computes equal operations once, such as the products of joined layers (``joined_linear.py``).

It is imported where passes are compiled, because the import of torch's compiler takes seconds.
"""

from __future__ import annotations

from typing import Any

import torch
from torch._inductor.custom_graph_pass import CustomGraphPass, get_hash_for_files


class SharedProducts(CustomGraphPass):
    """A pass of torch's compiler: equal operations on equal inputs become one."""

    def __call__(self, graph: torch.fx.Graph) -> None:
        found: dict[tuple[Any, ...], torch.fx.Node] = {}
        for node in list(graph.nodes):
            if not _is_pure(node):
                continue
            key = (node.target, _hashable(node.args), _hashable(node.kwargs))
            first = found.setdefault(key, node)
            if first is not node:
                node.replace_all_uses_with(first)
                graph.erase_node(node)

    def uuid(self) -> Any:
        return get_hash_for_files((__file__,))


def _is_pure(node: torch.fx.Node) -> bool:
    operator = node.target
    if node.op != "call_function" or not isinstance(operator, torch._ops.OpOverload) or operator.namespace != "aten":
        return False
    return not operator._schema.is_mutable and torch.Tag.nondeterministic_seeded not in operator.tags


def _hashable(value: Any) -> Any:
    """``value`` with tuples in place of lists and dictionaries; numbers with their types, because 1 == 1.0."""
    if isinstance(value, dict):
        return tuple((key, _hashable(each)) for key, each in value.items())
    if isinstance(value, (list, tuple)):
        return tuple(map(_hashable, value))
    return (type(value), value) if isinstance(value, (bool, int, float)) else value
