"""State dicts of torch modules as numpy arrays and back: the form in which weights travel."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import ml_dtypes
import numpy as np
import torch
from torch import Tensor

Array = np.ndarray[Any, np.dtype[Any]]

_BFLOAT16 = np.dtype(ml_dtypes.bfloat16)


def to_arrays(state: Mapping[str, Tensor]) -> dict[str, Array]:
    """Copies of the tensors as numpy arrays; bfloat16 as ml_dtypes'. Later changes to the module do not show."""
    return {name: _array(tensor.detach().cpu().contiguous()) for name, tensor in state.items()}


def to_tensors(arrays: Mapping[str, Array]) -> dict[str, Tensor]:
    """Copies of the arrays as tensors; they may be read-only."""
    return {name: _tensor(np.array(array)) for name, array in arrays.items()}


def _array(tensor: Tensor) -> Array:
    if tensor.dtype is torch.bfloat16:  # torch and numpy share the bits, not the type
        bits: Array = tensor.view(torch.int16).numpy()
        return bits.view(_BFLOAT16).copy()
    array: Array = tensor.numpy()
    return array.copy()


def _tensor(array: Array) -> Tensor:
    if array.dtype == _BFLOAT16:
        return torch.from_numpy(array.view(np.int16)).view(torch.bfloat16)
    return torch.from_numpy(array)
