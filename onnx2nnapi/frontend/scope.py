"""The names that the nodes of one body see, and the attributes that a function's caller gives."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from onnx import AttributeProto

from onnx2nnapi.errors import Origin

__all__ = ["Scope"]


@dataclass
class Scope:
    """The names that nodes of one body (a graph, a subgraph, a function) see.

    Attributes:
        opset: versions by domain.
        names: the body's own names and the values in the graph that they stand for.
        outer: the scope around it.
        attributes: those that the caller of a function gives.
        caller: the node whose body this is.
        read: the body's names that something reads (None: unknown); other optional outputs are left out.
        depth: how many calls and subgraphs are around it.
    """

    opset: Mapping[str, int]
    names: dict[str, str | None] = field(default_factory=dict)
    outer: Scope | None = None
    attributes: Mapping[str, AttributeProto] | None = None
    caller: Origin | None = None
    read: frozenset[str] | None = None
    depth: int = 0

    def find(self, name: str) -> str | None:
        """The value that a name stands for; None for an omitted argument of a function.

        Raises:
            KeyError: nothing has this name.
        """
        scope: Scope | None = self
        while scope is not None:
            if name in scope.names:
                return scope.names[name]
            scope = scope.outer
        raise KeyError(name)

    def inside(self) -> Scope:
        """The scope of a subgraph here."""
        return Scope(self.opset, outer=self, caller=self.caller, depth=self.depth + 1)

    def sees(self, name: str) -> bool:
        """Whether ``find`` would find it."""
        scope: Scope | None = self
        while scope is not None:
            if name in scope.names:
                return True
            scope = scope.outer
        return False

    def attribute(self, attribute: AttributeProto) -> AttributeProto | None:
        """An attribute with the caller's value in the place of a reference; None where the caller gives none."""
        if not attribute.ref_attr_name:
            return attribute
        scope: Scope | None = self
        while scope is not None and scope.attributes is None:
            scope = scope.outer
        found = None if scope is None or scope.attributes is None else scope.attributes.get(attribute.ref_attr_name)
        if found is None:
            return None
        copy = AttributeProto()
        copy.CopyFrom(found)
        copy.name = attribute.name
        return copy
