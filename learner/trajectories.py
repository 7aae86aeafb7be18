"""One trajectory as arrays, and the message it travels in. Decoding checks everything a broken sender can get wrong."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from landbridge.contract import TensorSpec
from landbridge.errors import InvalidArgument
from landbridge.tensors import Array, decode, decode_map, encode, encode_map, expect
from landbridge.v1 import learner_pb2 as pb
from learner.advantages import End


@dataclass(frozen=True)
class Trajectory:
    """T decisions of one episode; H the horizon. Meanings and shapes: ``Trajectory`` in ``learner.proto``."""

    id: str
    ticket: str
    worker_id: str
    observation: Mapping[str, Array]
    trace: Mapping[str, Array]
    log_prob: Array
    actions: Array
    rewards: Array
    evaluated: Array
    executed: Array
    versions: Array
    end: End
    success_once: bool
    success_at_end: bool
    seed: int
    episode_id: str

    def __len__(self) -> int:
        """Decisions."""
        return len(self.executed)


@dataclass(frozen=True)
class Layout:
    """What trajectories of one policy look like."""

    horizon: int
    action: TensorSpec
    observation: tuple[TensorSpec, ...]
    """Of the tensors that actor and critic read."""
    trace: Mapping[str, tuple[str, tuple[int, ...]]]
    """Name → dtype and shape of one decision's."""


@dataclass(frozen=True)
class Meta:
    """What is known of a stored trajectory without decoding it."""

    index: int
    """Of its ticket."""
    oldest: int
    """The smallest version in it."""
    env_steps: int
    decisions: int


def to_message(trajectory: Trajectory) -> pb.Trajectory:
    """The wire form."""
    return pb.Trajectory(
        trajectory_id=trajectory.id,
        ticket=trajectory.ticket,
        worker_id=trajectory.worker_id,
        observation=encode_map(trajectory.observation),
        trace=encode_map(trajectory.trace),
        log_prob=encode(trajectory.log_prob),
        actions=encode(trajectory.actions),
        rewards=encode(trajectory.rewards),
        evaluated=encode(trajectory.evaluated),
        executed=encode(trajectory.executed),
        versions=encode(trajectory.versions),
        end=f"END_{trajectory.end.name}",
        success_once=trajectory.success_once,
        success_at_end=trajectory.success_at_end,
        seed=trajectory.seed,
        episode_id=trajectory.episode_id,
    )


def from_message(message: pb.Trajectory, layout: Layout, newest_version: int) -> Trajectory:
    """Decode and check; INVALID_ARGUMENT names the field. Arrays are views of the message's bytes.

    ``newest_version``: no decision can have been made by a later one.
    """
    trajectory = _decoded(message)
    count, horizon = len(trajectory), layout.horizon
    if not message.trajectory_id or "\n" in message.trajectory_id:
        raise InvalidArgument("trajectory_id must be one line of text, unique for ever", field="trajectory_id")
    if count == 0 or (count == 1 and trajectory.end is End.ABANDONED):
        raise InvalidArgument(
            f"{count} decisions, ended {trajectory.end.name}: nothing can be learned from it; release its ticket",
            field="executed",
        )
    _check_shapes(trajectory, layout, count)
    if not 0 <= trajectory.executed.min() <= trajectory.executed.max() <= horizon:
        raise InvalidArgument(
            f"executed: from {trajectory.executed.min()} to {trajectory.executed.max()}, chunks have {horizon} steps",
            field="executed",
        )
    if not 0 <= trajectory.versions.min() <= trajectory.versions.max() <= newest_version:
        raise InvalidArgument(
            f"versions: from {trajectory.versions.min()} to {trajectory.versions.max()}, "
            f"0 to {newest_version} were published",
            field="versions",
        )
    return trajectory


def _decoded(message: pb.Trajectory) -> Trajectory:
    if message.end == pb.Trajectory.END_UNSPECIFIED:
        raise InvalidArgument("end: say how the trajectory ended (END_TERMINATED, …)", field="end")
    try:
        end = End(message.end)
    except ValueError:
        raise InvalidArgument(f"end: {message.end} is no way for a trajectory to end", field="end") from None
    return Trajectory(
        id=message.trajectory_id,
        ticket=message.ticket,
        worker_id=message.worker_id,
        observation=decode_map(message.observation, "observation"),
        trace=decode_map(message.trace, "trace"),
        log_prob=decode(message.log_prob, "log_prob"),
        actions=decode(message.actions, "actions"),
        rewards=decode(message.rewards, "rewards"),
        evaluated=decode(message.evaluated, "evaluated"),
        executed=expect(decode(message.executed, "executed"), "executed", dtype="int64", shape=(None,)),
        versions=decode(message.versions, "versions"),
        end=end,
        success_once=message.success_once,
        success_at_end=message.success_at_end,
        seed=message.seed,
        episode_id=message.episode_id,
    )


def _check_shapes(trajectory: Trajectory, layout: Layout, count: int) -> None:
    steps = (count, layout.horizon)
    expect(trajectory.versions, "versions", dtype="int64", shape=(count,))
    expect(trajectory.evaluated, "evaluated", dtype="bool", shape=steps)
    for name, array in (("log_prob", trajectory.log_prob), ("rewards", trajectory.rewards)):
        _finite(expect(array, name, dtype="float32", shape=steps), name)
    _finite(expect(trajectory.actions, "actions", dtype="float32", shape=(*steps, *layout.action.shape)), "actions")
    for spec in layout.observation:
        where = f'observation["{spec.name}"]'
        if spec.name not in trajectory.observation:
            came = sorted(trajectory.observation)
            raise InvalidArgument(f"{where} is missing; the policy or its critic reads it; {came} came", field=where)
        shape = (count + 1, *(None if extent < 0 else extent for extent in spec.shape))
        _finite(expect(trajectory.observation[spec.name], where, dtype=spec.dtype, shape=shape), where)
    if trajectory.trace.keys() != layout.trace.keys():
        raise InvalidArgument(f"trace: {sorted(layout.trace)} expected, {sorted(trajectory.trace)} came", field="trace")
    for name, (dtype, tail) in layout.trace.items():
        where = f'trace["{name}"]'
        _finite(expect(trajectory.trace[name], where, dtype=dtype, shape=(count, *tail)), where)


def _finite(array: Array, where: str) -> None:
    if array.dtype.kind == "f" and not np.isfinite(array).all():
        at = [int(i) for i in np.argwhere(~np.isfinite(array))[0]]
        raise InvalidArgument(f"{where}{at} is {array[tuple(at)]}; numbers must be finite", field=where)


def describe(data: bytes) -> tuple[str, Meta]:
    """Id and metadata of a stored message."""
    message = pb.Trajectory.FromString(data)
    versions, executed = decode(message.versions, "versions"), decode(message.executed, "executed")
    return message.trajectory_id, Meta(
        ticket_index(message.ticket), int(versions.min()), int(executed.sum()), len(executed)
    )


def ticket_index(ticket: str) -> int:
    """The number at the end of a ticket's id."""
    return int(ticket.rpartition("-")[2])
