# SPDX-License-Identifier: Apache-2.0
"""Sparse gradients, such as those of nn.Embedding(sparse=True): part of libddp.torch."""
from __future__ import annotations

from typing import Any

import torch

from ._errors import NotSupportedError, TensorError
from ._group import Group
from ._torch_tensors import stream_of


class SparseGradients(dict):
    """Parameters whose gradients are sparse, by number. Of each libddp knows a stand-in of one element, whose marks tell all ranks whether the
    parameter was used, is missing or came twice; the value is a buffer of the model. When a pass has ended well, the ranks exchange the rows that
    they have: their indices, and then the sum of each row that any rank has."""

    def __init__(self, module: torch.nn.Module, parameters: list[torch.nn.Parameter], options: dict) -> None:
        found = {id(part.weight) for part in module.modules() if isinstance(part, _SPARSE) and part.sparse}
        super().__init__((index, torch.zeros(1, device=parameter.device)) for index, parameter in enumerate(parameters) if id(parameter) in found)
        self._op = options.get("reduce", "average")
        if self:
            for option, plain in (("uneven_inputs", (None, False, 0)), ("divisor", (None, "world", 0)), ("own_values", (None, False, 0))):
                if options.get(option) not in plain:
                    raise NotSupportedError(f"{option} does not work with sparse gradients (nn.Embedding(..., sparse=True)): a rank without data "
                                            "answers for dense ones alone. Leave the option out, or give the embedding sparse=False; join() with "
                                            "torch.distributed works with both")

    def lend(self, model: Any, index: int, name: str, parameter: torch.Tensor) -> None:
        """To a model, which has the parameters before this one."""
        model.add_buffer(name, parameter)
        model.add_parameter(f"{name} (sparse gradient)", self[index])
        model._left_out = f"{name!r}, whose gradient is sparse: torch.optim has SparseAdam and SGD for it; or give the embedding sparse=False"

    def reduce(self, model: Any, parameters: list[torch.nn.Parameter], has_data: bool = True, factor: float = 1.0) -> None:
        """Of the parameters that any rank used in the pass that has just ended, on all ranks."""
        for index in self:
            if model.was_used(index):
                self._reduce(model.group, parameters[index], has_data, factor)

    def _reduce(self, group: Group, parameter: torch.nn.Parameter, has_data: bool, factor: float) -> None:
        given = parameter.grad if has_data else None
        if given is None:
            indices, rows = torch.empty(0, dtype=torch.int64), parameter.detach().new_empty((0, *parameter.shape[1:]))
        else:
            plain = _rows_of(given.detach())
            indices, rows = plain.indices()[0].contiguous(), plain.values().contiguous()
        found = group.all_reduce_rows(indices.cpu(), rows.cpu(), self._op, stream=stream_of(parameter))
        places, values = (torch.from_dlpack(part) for part in found)
        mean = torch.sparse_coo_tensor(places.unsqueeze(0), values if factor == 1.0 else values * factor, parameter.shape, is_coalesced=True,
                                       check_invariants=False).to(parameter.device)
        if has_data:
            parameter.grad = mean.to_dense() if given is not None and given.layout == torch.strided else mean


def _rows_of(gradient: torch.Tensor) -> torch.Tensor:
    """The gradient as rows, each index once."""
    if gradient.layout == torch.strided:  # the table is used elsewhere too, as a dense one
        return gradient.to_sparse(1)
    if gradient.layout != torch.sparse_coo or gradient.sparse_dim() != 1:
        raise TensorError(f"a sparse gradient has the layout {gradient.layout} and {gradient.sparse_dim()} sparse dimensions; libddp reduces rows "
                          "(torch.sparse_coo with one sparse dimension)")
    return gradient.coalesce()


_SPARSE = (torch.nn.Embedding, torch.nn.EmbeddingBag)
