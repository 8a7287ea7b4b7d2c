"""Writing an ONNX graph down, node by node."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray


class Builder:
    """Collects nodes and constants; every value is known by its name."""

    def __init__(self) -> None:
        self.nodes: list[Any] = []
        self.constants: dict[str, Any] = {}

    def constant(self, value: NDArray[Any] | np.generic, name: str) -> str:
        """A value that the model file holds; its name, under which it is written down once."""
        from onnx import numpy_helper

        self.constants.setdefault(name, numpy_helper.from_array(np.array(value, order="C"), name))
        return name

    def axes(self, *axes: int) -> str:
        """Axes, as operators take them."""
        return self.constant(np.array(axes, np.int64), "axes_" + "_".join(map(str, axes)))

    def node(self, kind: str, *inputs: str, name: str, **attributes: Any) -> str:
        """An operator with one output; its name."""
        from onnx import helper

        self.nodes.append(helper.make_node(kind, list(inputs), [name], name=name, **attributes))
        return name
