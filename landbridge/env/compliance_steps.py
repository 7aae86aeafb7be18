"""Cases about actions, chunks, episodes and states."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

import numpy as np

from landbridge.env.client import EnvSession, StepResult
from landbridge.env.compliance_probe import Probe, Skipped, refused, same
from landbridge.env.compliance_sessions import check_observation
from landbridge.errors import DeadlineExceeded, FailedPrecondition, InvalidArgument, NotFound, Unimplemented
from landbridge.tensors import encode
from landbridge.v1 import env_pb2 as pb
from landbridge.verdict import NotKept, expect

SEED = 11


def _refused_chunk(probe: Probe, change: Callable[[np.ndarray], np.ndarray], mention: str = "action") -> None:
    """A running environment refuses the changed chunk as INVALID_ARGUMENT."""
    with probe.open() as session:
        session.reset([0], [SEED])
        request = probe.chunk(session, change(probe.actions(1, 1)))
        refused(InvalidArgument, lambda: probe.call("StepChunk", request), mention)


def wrong_dtype(probe: Probe) -> None:
    """actions of another dtype are INVALID_ARGUMENT"""
    other = np.float64 if probe.action.dtype != "float64" else np.float32
    _refused_chunk(probe, lambda a: a.astype(other))


def wrong_shape(probe: Probe) -> None:
    """actions of another shape are INVALID_ARGUMENT"""
    _refused_chunk(probe, lambda a: np.concatenate([a, a], axis=-1))


def wrong_rows(probe: Probe) -> None:
    """actions for more environments than named are INVALID_ARGUMENT"""
    _refused_chunk(probe, lambda a: np.concatenate([a, a], axis=0))


def empty_chunk(probe: Probe) -> None:
    """a chunk of no actions is INVALID_ARGUMENT"""
    _refused_chunk(probe, lambda a: a[:, :0])


def long_chunk(probe: Probe) -> None:
    """a chunk longer than max_chunk is INVALID_ARGUMENT"""
    _refused_chunk(probe, lambda a: np.repeat(a, probe.info.max_chunk + 1, axis=1))


def truncated_bytes(probe: Probe) -> None:
    """a tensor whose bytes do not fit its shape is INVALID_ARGUMENT"""
    with probe.open() as session:
        session.reset([0], [SEED])
        request = probe.chunk(session, probe.actions(1, 1))
        request.actions.raw = request.actions.raw[:-1]
        refused(InvalidArgument, lambda: probe.call("StepChunk", request), "action")


def _not_finite(probe: Probe, value: float) -> None:
    if not probe.action.dtype.startswith(("float", "bfloat")):
        raise Skipped(f"actions are {probe.action.dtype}")

    def poison(actions: np.ndarray) -> np.ndarray:
        actions.reshape(-1)[-1] = value
        return actions

    _refused_chunk(probe, poison)


def nan_action(probe: Probe) -> None:
    """NaN in an action is INVALID_ARGUMENT"""
    _not_finite(probe, np.nan)


def inf_action(probe: Probe) -> None:
    """Inf in an action is INVALID_ARGUMENT"""
    _not_finite(probe, np.inf)


def _episode(probe: Probe, session: EnvSession, env_id: int = 0, steps: int = 3) -> list[dict[str, np.ndarray]]:
    """First observation and those after ``steps`` single steps (fewer where the episode ends before)."""
    seen = [session.reset([env_id], [SEED]).observation]
    actions = probe.actions(1, steps)
    for k in range(steps):
        result = session.step(actions[:, k], [env_id])
        seen.append(result.observation)
        if result.done[0]:
            break
    return seen


def refusal_moves_nothing(probe: Probe) -> None:
    """a refused chunk moves no environment, not even those whose actions were right"""
    count = min(2, probe.info.num_envs)
    with probe.open(count) as session:
        good = probe.actions(count, 1)
        session.reset(seeds=[SEED] * count)
        wanted = session.step_chunk(good).observation
        session.reset(seeds=[SEED] * count)
        bad = good.copy()
        bad[-1] = np.nan if bad.dtype.kind == "f" else 0
        request = probe.chunk(session, bad if bad.dtype.kind == "f" else bad[:, :0])
        refused(InvalidArgument, lambda: probe.call("StepChunk", request))
        after = session.step_chunk(good)
        expect((after.episode_steps == 1).all(), f"episode_steps {after.episode_steps.tolist()} after one step")
        same(wanted, after.observation, "the step after the refused one")


def counts(probe: Probe) -> None:
    """a chunk's answer has the promised shapes and counts"""
    length = probe.length()
    with probe.open() as session:
        session.reset([0], [SEED])
        result = session.step_chunk(probe.actions(1, length), [0])
        _check_result(probe, result, length)
        expect(result.episode_steps[0] == result.executed[0], f"episode_steps {result.episode_steps[0]} at the start")


def _check_result(probe: Probe, result: StepResult, length: int) -> None:
    check_observation(probe, result.observation, 1)
    wanted: dict[str, tuple[str, tuple[int, ...]]] = {
        "rewards": ("float32", (1, length)),
        "evaluated": ("bool", (1, length)),
    }
    wanted |= dict.fromkeys(("executed", "episode_steps"), ("int64", (1,)))
    marks = ("terminated", "truncated", "abandoned", "success_once", "success_at_end")
    wanted |= dict.fromkeys(marks, ("bool", (1,)))
    for name, (dtype, shape) in wanted.items():
        value = getattr(result, name)
        came = (value.dtype.name, value.shape)
        expect(came == (dtype, shape), f"{name}: {dtype} {list(shape)} expected, {came[0]} {list(came[1])} came")
    executed = int(result.executed[0])
    expect(0 <= executed <= length, f"executed {executed} of a chunk of {length}")
    expect(result.done[0] or executed == length, f"executed {executed} of {length} and the episode goes on")
    expect(not result.evaluated[0, executed:].any(), "steps never executed are marked as evaluated")
    expect(not result.rewards[0][~result.evaluated[0]].any(), "a reward where nothing was evaluated")
    expect(result.terminated[0] + result.truncated[0] + result.abandoned[0] <= 1, "an episode ends in one way only")
    expect(result.success_once[0] or not result.success_at_end[0], "success at the end, but not once")
    expect(len(result.messages) == 1 and len(result.observation_ids) == 1, "one message and observation id each")


def step_is_chunk_of_one(probe: Probe) -> None:
    """single steps and one chunk pass through the same states"""
    length = probe.length()
    with probe.open() as session:
        singly = _episode(probe, session, steps=length)
        session.reset([0], [SEED])
        same(singly[-1], session.step_chunk(probe.actions(1, length), [0]).observation, f"after {length} steps")


def seeds(probe: Probe) -> None:
    """the same seed gives the identical episode again, whatever ran before"""
    with probe.open() as session:
        before = _episode(probe, session)
        session.reset([0], [SEED + 1])
        session.step_chunk(probe.actions(1, 1, seed=9), [0])
        for k, (left, right) in enumerate(zip(before, _episode(probe, session), strict=True)):
            same(left, right, f"observation {k} of the same seed")


def seeds_everywhere(probe: Probe) -> None:
    """the same seed gives the identical episode in every environment, beside others"""
    count = min(3, probe.info.num_envs)
    with probe.open(count) as session:
        alone = _episode(probe, session, steps=1)
        first = session.reset(seeds=[SEED] * count)
        result = session.step_chunk(np.repeat(probe.actions(1, 1), count, axis=0))
        for i in range(count):
            same(alone[0], {n: v[i : i + 1] for n, v in first.observation.items()}, f"environment {i} at its reset")
            same(alone[1], {n: v[i : i + 1] for n, v in result.observation.items()}, f"environment {i} after a step")


def order_of_env_ids(probe: Probe) -> None:
    """answers come in the order of the environments named"""
    with probe.open(2) as session:
        ahead = session.reset([0, 1], [SEED, SEED + 1]).observation
        back = session.reset([1, 0], [SEED + 1, SEED]).observation
        same(ahead, {name: value[::-1] for name, value in back.items()}, "environments 1, 0 for 0, 1")


def partial_reset(probe: Probe) -> None:
    """resetting one environment leaves the others in their episodes"""
    with probe.open(2) as session:
        actions = probe.actions(2, 2)
        session.reset(seeds=[SEED, SEED])
        wanted = session.step_chunk(actions[:1], [0]).observation
        session.reset(seeds=[SEED, SEED])
        session.step(actions[:1, 0], [0])
        session.reset([1], [SEED + 1])
        same(wanted, session.step(actions[:1, 1], [0]).observation, "environment 0 after 1 was reset")


def episode_end(probe: Probe) -> None:
    """an episode ends once, in mid-chunk where it must, with its counts adding up"""
    length = probe.length(7)
    with probe.open() as session:
        session.reset([0], [SEED])
        results = probe.run_to_end(session, 0, length)
        for result in results:
            _check_result(probe, result, length)
        total = sum(int(result.executed[0]) for result in results)
        expect(total == results[-1].episode_steps[0], f"{total} steps executed, {results[-1].episode_steps[0]} counted")
        expect(total <= probe.info.max_episode_steps, f"{total} steps, {probe.info.max_episode_steps} allowed")
        ids = [result.observation_ids[0] for result in results]
        expect(ids == sorted(set(ids)), f"observation ids {ids[:5]} do not ascend")


def step_after_end(probe: Probe) -> None:
    """a step after the end is FAILED_PRECONDITION and moves nobody; Reset begins anew"""
    count = min(2, probe.info.num_envs)
    with probe.open(count) as session:
        first = session.reset(seeds=[SEED] * count).observation
        probe.run_to_end(session, 0, probe.length(32))
        actions = probe.actions(count, 1)
        refused(FailedPrecondition, lambda: session.step_chunk(actions), "0")
        if count == 2:
            other = session.step_chunk(actions[1:], [1])
            expect(other.episode_steps[0] == 1, "the refused step moved the environment that was still running")
        again = session.reset([0], [SEED]).observation
        same({name: value[:1] for name, value in first.items()}, again, "the first observation after an ended episode")


def chunk_end_evaluation(probe: Probe) -> None:
    """evaluation at the chunk's end passes through the same states"""
    length = probe.length()
    with probe.open() as session:
        session.reset([0], [SEED])
        every = session.step_chunk(probe.actions(1, length), [0])
        session.reset([0], [SEED])
        lean = session.step_chunk(probe.actions(1, length), [0], "chunk_end")
        executed = int(every.executed[0])
        expect(bool(every.evaluated[0, :executed].all()), "with EVERY_STEP each executed step is evaluated")
        if executed == length and not every.terminated[0]:
            same(every.observation, lean.observation, f"after {length} steps")
        expect(lean.evaluated[0, int(lean.executed[0]) - 1], "the last executed step must be evaluated")


def stream(probe: Probe) -> None:
    """StepStream answers in order, and as StepChunk does"""
    actions = probe.actions(1, 2)
    with probe.open() as session:
        wanted = _episode(probe, session, steps=2)
        session.reset([0], [SEED])
        requests = [probe.chunk(session, actions[:, k : k + 1], env_ids=[0], request_id=40 + k) for k in range(2)]
        answers = list(probe.client.stub.StepStream(iter(requests), timeout=probe.client.timeout))
        expect([a.request_id for a in answers] == [40, 41], f"request ids {[a.request_id for a in answers]} for 40, 41")
        session.reset([0], [SEED])
        line = session.stream()
        for k in range(len(wanted) - 1):
            line.send(actions[:, k : k + 1], [0])
            same(wanted[k + 1], line.receive().observation, f"chunk {k} on a stream")
        line.close()


def stream_errors(probe: Probe) -> None:
    """a refused chunk is answered within its stream, which goes on"""
    with probe.open() as session:
        session.reset([0], [SEED])
        line = session.stream()
        bad = np.concatenate([probe.actions(1, 1)] * 2, axis=-1)
        for actions in (bad, probe.actions(1, 1)):
            line.send(actions, [0])
        refused(InvalidArgument, line.receive)
        expect(line.receive().episode_steps[0] == 1, "the chunk after the refused one is the first step")
        line.close()
        nobody = pb.StepChunkRequest(session_id="no-such-session", actions=encode(probe.actions(1, 1)))
        (answer,) = list(probe.client.stub.StepStream(iter([nobody]), timeout=probe.client.timeout))
        expect(answer.error.code == NotFound.code.value[0], f"an unknown session gave code {answer.error.code}")


def deadline(probe: Probe) -> None:
    """after a deadline has passed, Reset begins anew"""
    with probe.open() as session:
        first = session.reset([0], [SEED]).observation
        request = probe.chunk(session, probe.actions(1, probe.info.max_chunk), env_ids=[0])
        with contextlib.suppress(DeadlineExceeded):
            probe.call("StepChunk", request, timeout=0.002)
        same(first, session.reset([0], [SEED]).observation, "the first observation after a deadline")
        after = session.step_chunk(probe.actions(1, 1), [0])
        expect(after.episode_steps[0] == 1, "the late chunk was executed after the reset")


def save_and_restore(probe: Probe) -> None:
    """a saved state continues exactly"""
    with probe.open() as session:
        if not probe.info.can_save_state:
            session.reset([0], [SEED])
            refused(Unimplemented, lambda: session.save_state(0))
            return
        _continues_exactly(probe, session)


def _continues_exactly(probe: Probe, session: EnvSession) -> None:
    actions = probe.actions(1, 2)
    session.reset([0], [SEED])
    at = session.step(actions[:, 0], [0])
    if at.done[0]:
        raise Skipped("the episode ended with its first step")
    state = session.save_state(0)
    wanted = session.step(actions[:, 1], [0])
    session.reset([0], [SEED + 1])
    same(at.observation, session.restore_state(0, state), "the observation at the saved state")
    same(wanted.observation, session.step(actions[:, 1], [0]).observation, "a step after the saved state")


def restore_nonsense(probe: Probe) -> None:
    """restoring what is no state is INVALID_ARGUMENT"""
    if not probe.info.can_save_state:
        raise Skipped("the endpoint saves no states")
    with probe.open() as session:
        session.reset([0], [SEED])
        refused(InvalidArgument, lambda: session.restore_state(0, b"\x00nonsense"))
        session.reset([0], [SEED])


def render(probe: Probe) -> None:
    """Render gives [H, W, 3] uint8, or is UNIMPLEMENTED where the endpoint says so"""
    with probe.open() as session:
        session.reset([0], [SEED])
        if not probe.info.can_render:
            refused(Unimplemented, lambda: session.render(0))
            return
        image: Any = session.render(0)
        if image.dtype != np.uint8 or image.ndim != 3 or image.shape[2] != 3:
            raise NotKept(f"{image.dtype.name} {list(image.shape)} came")


REFUSALS = (wrong_dtype, wrong_shape, wrong_rows, empty_chunk, long_chunk, truncated_bytes, nan_action, inf_action)
"""They send what must not be executed."""
STEPPING = (
    refusal_moves_nothing,
    counts,
    step_is_chunk_of_one,
    seeds,
    seeds_everywhere,
    order_of_env_ids,
    partial_reset,
    episode_end,
    step_after_end,
    chunk_end_evaluation,
    stream,
    stream_errors,
    deadline,
    save_and_restore,
    restore_nonsense,
    render,
)
