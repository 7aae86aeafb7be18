"""Observations made up from a contract: for trying a policy out without a simulator."""

from __future__ import annotations

import numpy as np

from landbridge.contract import Contract, TensorSpec
from landbridge.tensors import Array, dtype_number, numpy_dtype


def sample_observation(
    contract: Contract, names: tuple[str, ...], rows: int, rng: np.random.Generator | None = None
) -> dict[str, Array]:
    """{name: [rows, …]} of the right dtypes and shapes; uniform within finite bounds, standard normal without.

    Without ``rng`` all zeros (or the bound nearest to zero). Extents that the contract leaves open are 1.
    """
    return {name: _sample(contract.spec(name), rows, rng) for name in names}


def _sample(spec: TensorSpec, rows: int, rng: np.random.Generator | None) -> Array:
    shape = (rows, *(max(1, extent) if extent < 0 else extent for extent in spec.shape))
    dtype = numpy_dtype(dtype_number(spec.dtype))
    low, high = (np.broadcast_to(b, shape[1:]) for b in _bounds(spec, shape[1:]))
    bounded = np.isfinite(low) & np.isfinite(high)
    if rng is None:
        drawn = np.zeros(shape)
    elif dtype.kind in "iu":
        drawn = rng.integers(0, 128, shape).astype(np.float64)
    elif dtype.kind == "b":
        drawn = rng.integers(0, 2, shape).astype(np.float64)
    else:
        drawn = rng.standard_normal(shape)
    if rng is not None and dtype.kind != "b":
        uniform = rng.random(shape)
        inside = np.where(bounded, low, 0.0) + uniform * np.where(bounded, high - np.where(bounded, low, 0.0), 0.0)
        drawn = np.where(bounded, inside, drawn)
    if dtype.kind in "iu":
        drawn = np.rint(drawn)
    made: Array = np.clip(drawn, low, high).astype(dtype)
    return made


def _bounds(spec: TensorSpec, shape: tuple[int, ...]) -> tuple[Array, Array]:
    if any(extent < 0 for extent in spec.shape):  # bounds one an element cannot be meant here
        low = spec.low[0] if len(spec.low) == 1 else -np.inf
        high = spec.high[0] if len(spec.high) == 1 else np.inf
        return np.full(shape, low), np.full(shape, high)
    return spec.bounds()
