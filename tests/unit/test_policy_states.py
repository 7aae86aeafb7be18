"""Weights between torch and numpy, and observations made up from a contract."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
import torch
from policy_parts import make_policy, observation, write_checkpoint

from landbridge.contract import Contract, TensorSpec
from landbridge.policies.states import to_arrays, to_tensors
from landbridge.policy.samples import sample_observation
from policy_server.backends.torch import TorchBackend

DTYPES = [
    torch.float32,
    torch.float64,
    torch.float16,
    torch.bfloat16,
    torch.int64,
    torch.int32,
    torch.uint8,
    torch.bool,
]


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("shape", [(), (0,), (3,), (2, 3)], ids=str)
def test_every_dtype_and_shape_goes_there_and_back(dtype: torch.dtype, shape: tuple[int, ...]) -> None:
    state = {"x": (torch.arange(int(np.prod(shape))).reshape(shape) - 1.5).to(dtype)}
    arrays = to_arrays(state)
    assert arrays["x"].shape == shape
    back = to_tensors(arrays)["x"]
    assert back.dtype is dtype and torch.equal(back, state["x"])


def test_bfloat16_is_ml_dtypes_bfloat16() -> None:
    assert to_arrays({"x": torch.tensor([1.5], dtype=torch.bfloat16)})["x"].dtype == ml_dtypes.bfloat16


def test_neither_side_sees_the_others_later_changes() -> None:
    tensor = torch.zeros(2)
    arrays = to_arrays({"x": tensor})
    tensor += 1
    assert arrays["x"].tolist() == [0, 0]
    made = to_tensors(arrays)["x"]
    made += 2
    assert arrays["x"].tolist() == [0, 0]


def test_modules_of_two_versions_share_no_weights(tmp_path_factory: pytest.TempPathFactory) -> None:
    backend = TorchBackend(write_checkpoint(tmp_path_factory.mktemp("a")), threads=1)
    states = [to_arrays(make_policy(version).state_dict()) for version in (0, 1)]
    modules = [backend.build(state) for state in states]
    for module, state in zip(modules, states, strict=True):
        assert all(np.array_equal(tensor.numpy(), state[name]) for name, tensor in module.state_dict().items())
        assert not any(parameter.requires_grad for parameter in module.parameters())
    answers = [backend.compute(module, observation(1), [1], True, False).actions for module in modules]
    assert np.abs(answers[0] - answers[1]).max() > 1e-3


OPEN = Contract(
    observation=(
        TensorSpec("bounded", (3,), low=(-2.0, 0.0, 5.0), high=(-1.0, 0.5, 6.0)),
        TensorSpec("half", (2,), low=(1.0,)),
        TensorSpec("image", (4, -1, 3), dtype="uint8", low=(0.0,), high=(255.0,)),
        TensorSpec("half_precision", (2,), dtype="bfloat16"),
        TensorSpec("flag", (1,), dtype="bool"),
    ),
    action=TensorSpec("action", (1,)),
    control_rate_hz=1.0,
)


@pytest.mark.parametrize("seed", [None, 0, 1])
def test_made_up_observations_are_of_the_contracts_shape_dtype_and_bounds(seed: int | None) -> None:
    rng = None if seed is None else np.random.default_rng(seed)
    made = sample_observation(OPEN, tuple(spec.name for spec in OPEN.observation), 5, rng)
    assert {name: (array.dtype.name, array.shape) for name, array in made.items()} == {
        "bounded": ("float32", (5, 3)),
        "half": ("float32", (5, 2)),
        "image": ("uint8", (5, 4, 1, 3)),
        "half_precision": ("bfloat16", (5, 2)),
        "flag": ("bool", (5, 1)),
    }
    assert (made["bounded"] >= [-2, 0, 5]).all() and (made["bounded"] <= [-1, 0.5, 6]).all()
    assert (made["half"] >= 1).all()
    if seed is not None:
        assert len(np.unique(made["bounded"])) > 5 and len(np.unique(made["image"])) > 5
