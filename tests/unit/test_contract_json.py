"""Contracts as JSON (checkpoints, demonstration files): what they mean survives, what is not a contract does not."""

from __future__ import annotations

import enum
import json
import math
from collections.abc import Callable
from typing import Any

import pytest
from flow_parts import CONTRACT

from landbridge.contract import (
    Contract,
    DeltaReference,
    ImageLayout,
    Quantity,
    Rotation,
    Segment,
    TensorSpec,
    Unit,
)
from landbridge.contract_codec import contract_from_json, contract_to_json
from landbridge.errors import InvalidArgument


def through_text(contract: Contract) -> Contract:
    """To strict JSON text (no bare Infinity or NaN) and back."""
    return contract_from_json(json.loads(json.dumps(contract_to_json(contract), allow_nan=False)))


def with_segment(segment: Segment) -> Contract:
    return Contract((TensorSpec("state", (8,), segments=(segment,)),), TensorSpec("action", (1,)), 20.0)


def test_a_contract_survives() -> None:
    assert through_text(CONTRACT) == CONTRACT


@pytest.mark.parametrize("kind", [Quantity, Unit, Rotation, DeltaReference], ids=lambda kind: kind.__name__)
def test_every_word_of_the_vocabulary_survives(kind: type[enum.Enum]) -> None:
    field = {Quantity: "quantity", Unit: "unit", Rotation: "rotation", DeltaReference: "delta_reference"}[kind]
    for member in kind:
        words: dict[str, Any] = {"quantity": Quantity.OTHER, field: member}
        contract = with_segment(Segment("s", 2, 4, frame="camera:wrist", **words))
        assert through_text(contract) == contract, member


def test_a_gripper_that_closes_at_zero_is_not_one_whose_polarity_is_unknown() -> None:
    stated = with_segment(Segment("g", 0, 1, Quantity.GRIPPER, Unit.METRE, gripper_closed=0.0, gripper_open=0.08))
    silent = with_segment(Segment("g", 0, 1, Quantity.GRIPPER, Unit.METRE))
    assert through_text(stated) == stated
    assert through_text(silent) == silent


def test_bounds_survive_to_the_bit_and_may_be_infinite() -> None:
    bounds = TensorSpec("action", (3,), low=(-0.1, -math.inf, 1 / 3), high=(0.1, math.inf, 2e300))
    contract = Contract((), bounds, control_rate_hz=1 / 0.07)
    assert through_text(contract) == contract


def test_pictures_of_any_size_dtypes_and_words_survive() -> None:
    contract = Contract(
        (
            TensorSpec("rgb", (-1, -1, 3), "uint8", image=ImageLayout("HWC", "BGR", upright=False, camera="wrist")),
            TensorSpec("half", (2,), "bfloat16", privileged=True, description="größer als null"),
        ),
        TensorSpec("action", (1,)),
        control_rate_hz=0.0,
        task="t",
        embodiment="panda",
        instruction="lift it",
        notes=("one", "two"),
    )
    assert through_text(contract) == contract


@pytest.mark.parametrize(
    "change",
    [
        lambda d: d.update(colour="red"),
        lambda d: d["observation"][0].update(shapes=[1]),
        lambda d: d["observation"][0]["segments"][0].update(unit="UNIT_FURLONG"),
        lambda d: d["action"].update(dtype="DTYPE_COMPLEX9"),
        lambda d: d["action"].update(low="none"),
    ],
)
def test_strangers_in_it_are_refused(change: Callable[[dict[str, Any]], None]) -> None:
    data = json.loads(json.dumps(contract_to_json(CONTRACT)))
    change(data)
    with pytest.raises(InvalidArgument, match="not a contract"):
        contract_from_json(data)


@pytest.mark.parametrize("lacking", ["quantity", "unit"])
def test_a_segment_that_does_not_say_what_it_is_is_refused(lacking: str) -> None:
    data = contract_to_json(CONTRACT)
    del data["observation"][0]["segments"][0][lacking]
    with pytest.raises(InvalidArgument, match=f"{lacking} 0 is unset or unknown"):
        contract_from_json(data)


def test_a_contract_without_an_action_is_refused() -> None:
    data = contract_to_json(CONTRACT)
    del data["action"]
    with pytest.raises(InvalidArgument):
        contract_from_json(data)
