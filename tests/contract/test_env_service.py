"""The compliance suite is green on our servers, and red on servers that are broken on purpose."""

from __future__ import annotations

import contextlib
import itertools
import json
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from google.protobuf import duration_pb2

from landbridge import rpc
from landbridge.env import compliance
from landbridge.env.protocol import ChunkResult, Observation, ResetResult
from landbridge.env.service import EnvServicer
from landbridge.env.sessions import State
from landbridge.errors import FailedPrecondition
from landbridge.verdict import Verdict

sys.path.insert(0, str(Path(__file__).parents[1] / "unit"))

from env_parts import LocalBackend, served


@contextlib.contextmanager
def sim_server(spec: str, *words: str) -> Iterator[str]:
    """A real server process; yields its address."""
    command = [sys.executable, "-m", "sim_server.serve", spec, "--port", "0", *words]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stdin=subprocess.DEVNULL)
    try:
        assert process.stdout is not None
        yield json.loads(process.stdout.readline())["address"]
    finally:
        process.terminate()
        process.wait(5.0)


def told(verdicts: Sequence[Verdict]) -> str:
    return "\n".join(f"{v.name}: {v.message}" for v in verdicts if not v.passed)


@pytest.mark.parametrize(
    ("spec", "num_envs"), [("gymnasium:CartPole-v1", 3), ("gymnasium:Pendulum-v1", 2), ("gymnasium:Pendulum-v1", 1)]
)
def test_our_simulator_server_keeps_the_protocol(spec: str, num_envs: int) -> None:
    with sim_server(spec, "--num-envs", str(num_envs)) as address:
        verdicts = compliance.run(address)
    assert len(verdicts) >= 25
    assert not told(verdicts)
    skipped = [v.name for v in verdicts if v.message.startswith("skipped")]
    assert len(skipped) <= (3 if num_envs == 1 else 0), skipped


def test_results_over_grpc_and_worker_processes_are_those_of_this_process() -> None:
    from landbridge.env.client import EnvClient

    direct = LocalBackend("CartPole-v1", 1)
    actions = np.random.default_rng(0).uniform(0, 1, (40, 1, 3, 1)).astype(np.float32)
    for count in (1, 2, 8):
        with (
            sim_server("gymnasium:CartPole-v1", "--num-envs", str(count)) as address,
            EnvClient(address) as client,
            client.open(0, stream=count == 2) as session,
        ):
            seeds = [*range(100, 100 + count - 1), 5]  # the episode looked at is the last environment's
            got = session.reset(seeds=seeds).observation["state"][-1]
            assert np.array_equal(got, direct.reset([0], [5], {})[0].observation["state"])
            for chunk in actions:
                step = session.step_chunk(chunk, [count - 1])
                (wanted,) = direct.step_chunk([0], chunk, True, 1.0)
                assert np.array_equal(step.observation["state"][0], wanted.observation["state"])
                assert np.array_equal(step.rewards[0], wanted.rewards)
                assert (step.executed[0], bool(step.terminated[0])) == (wanted.executed, wanted.terminated)
                if step.done[0]:
                    break
            assert step.terminated[0]


class Drifting(LocalBackend):
    """The first observation depends on what ran before."""

    def reset(self, env_ids: Sequence[int], seeds: Sequence[int], options: dict[str, Any]) -> list[ResetResult]:
        self.count = getattr(self, "count", 0) + 1
        return super().reset(env_ids, [seed + self.count for seed in seeds], options)


class Sharing(LocalBackend):
    """Resets every environment, whichever is named."""

    def reset(self, env_ids: Sequence[int], seeds: Sequence[int], options: dict[str, Any]) -> list[ResetResult]:
        super().reset(range(self.num_envs), [seeds[0]] * self.num_envs, options)
        return super().reset(env_ids, seeds, options)


class Miscounting(LocalBackend):
    """Claims that whole chunks were executed."""

    def step_chunk(self, ids: Sequence[int], actions: np.ndarray, every: bool, limit: float) -> list[ChunkResult]:
        results = super().step_chunk(ids, actions, every, limit)
        for result in results:
            result.executed = actions.shape[1]
        return results


class Skewed(LocalBackend):
    """Lean steps pass through other states."""

    def step_chunk(self, ids: Sequence[int], actions: np.ndarray, every: bool, limit: float) -> list[ChunkResult]:
        return super().step_chunk(ids, actions if every else actions * np.float32(1.001), every, limit)


class Poisoned(LocalBackend):
    """Observations with NaN in them."""

    def reset(self, env_ids: Sequence[int], seeds: Sequence[int], options: dict[str, Any]) -> list[ResetResult]:
        results = super().reset(env_ids, seeds, options)
        for result in results:
            result.observation["state"][0] = np.nan
        return results


class Forgetful(LocalBackend):
    """Restores the beginning of the episode, whatever was saved."""

    def restore_state(self, env_id: int, state: bytes) -> Observation:
        saved = json.loads(state)
        return super().restore_state(env_id, json.dumps(saved | {"actions": []}).encode())


class Misordered(LocalBackend):
    """Answers in its own order."""

    def reset(self, env_ids: Sequence[int], seeds: Sequence[int], options: dict[str, Any]) -> list[ResetResult]:
        results = super().reset(env_ids, seeds, options)
        return [results[k] for k in np.argsort(env_ids)]


class Wide(LocalBackend):
    """Observations in float64, whatever the contract says."""

    def reset(self, env_ids: Sequence[int], seeds: Sequence[int], options: dict[str, Any]) -> list[ResetResult]:
        results = super().reset(env_ids, seeds, options)
        return [ResetResult({n: v.astype(np.float64) for n, v in r.observation.items()}) for r in results]


class Unchecked(EnvServicer):
    """Executes whatever comes."""

    def _actions(self, message: Any, name: str, count: int, *, chunk: bool) -> np.ndarray:
        raw = np.frombuffer(message.raw, np.float32)[:count]
        return np.nan_to_num(raw).reshape(count, *([1] if chunk else []), *self._action.shape)


class Permissive(EnvServicer):
    """Resets finished environments by itself."""

    def _step(self, session: Any, env_ids: list[int], *args: Any, **kwargs: Any) -> Any:
        for i in env_ids:
            slot = session.slots[i]
            if slot.state is State.ENDED:
                self._backend.reset([slot.backend_id], [0], {})
                slot.state = State.RUNNING
        return super()._step(session, env_ids, *args, **kwargs)


class Careless(EnvServicer):
    """Checks actions after it has stepped those environments that came first."""

    def _step_chunk(self, request: Any, limit: Any) -> Any:
        with self._sessions.entered(request.session_id) as session:
            good = self._backend.contract.action
            zero = np.zeros((1, 1, *good.shape), good.dtype)
            self._step(session, session.select(request.env_ids)[:1], zero, True, limit)
        return super()._step_chunk(request, limit)


class Immortal(EnvServicer):
    """Leases never end."""

    def Open(self, request: Any, context: Any) -> Any:
        if request.HasField("lease") and 5 <= request.lease.seconds <= 600:
            request.lease.CopyFrom(duration_pb2.Duration(seconds=600))
        return super().Open(request, context)


class Jealous(EnvServicer):
    """The second Close of a session is an error."""

    def Close(self, request: Any, context: Any) -> Any:
        with self._sessions.entered(request.session_id):
            pass
        return super().Close(request, context)


class Repeating(EnvServicer):
    """One episode id for all."""

    def Reset(self, request: Any, context: Any) -> Any:
        response = super().Reset(request, context)
        response.episode_ids[:] = ["episode"] * len(response.episode_ids)
        return response


class Torn(EnvServicer):
    """An error ends the whole stream."""

    def StepStream(self, requests: Any, context: Any) -> Any:
        for response in super().StepStream(requests, context):
            if response.HasField("error"):
                raise FailedPrecondition(response.error.message)
            yield response


class Muddled(EnvServicer):
    """Answers of a stream carry numbers of their own."""

    def StepStream(self, requests: Any, context: Any) -> Any:
        for number, response in zip(itertools.count(), super().StepStream(requests, context)):
            response.request_id = number
            yield response


BROKEN: dict[str, tuple[Callable[..., LocalBackend], Callable[..., EnvServicer], str]] = {
    "Drifting": (Drifting, EnvServicer, "the identical episode again"),
    "Sharing": (Sharing, EnvServicer, "leaves the others in their episodes"),
    "Miscounting": (Miscounting, EnvServicer, "ends once"),
    "Skewed": (Skewed, EnvServicer, "evaluation at the chunk's end"),
    "Poisoned": (Poisoned, EnvServicer, "what the contract promises"),
    "Forgetful": (Forgetful, EnvServicer, "a saved state continues exactly"),
    "Misordered": (Misordered, EnvServicer, "in the order of the environments named"),
    "Wide": (Wide, EnvServicer, "what the contract promises"),
    "Unchecked": (LocalBackend, Unchecked, "NaN in an action"),
    "Permissive": (LocalBackend, Permissive, "a step after the end"),
    "Careless": (LocalBackend, Careless, "a refused chunk moves no environment"),
    "Immortal": (LocalBackend, Immortal, "a vanished client"),
    "Jealous": (LocalBackend, Jealous, "closing it again is no error"),
    "Repeating": (LocalBackend, Repeating, "episode ids are unique"),
    "Torn": (LocalBackend, Torn, "which goes on"),
    "Muddled": (LocalBackend, Muddled, "StepStream answers in order"),
}


@pytest.mark.parametrize(("backend", "servicer", "found"), BROKEN.values(), ids=BROKEN)
def test_the_suite_finds_what_is_broken(
    backend: Callable[..., LocalBackend],
    servicer: Callable[..., EnvServicer],
    found: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    if servicer is not Immortal:  # waiting for a lease's end is a matter of that one
        quiet = tuple(c for c in compliance.compliance_sessions.QUIET if c.__name__ != "vanished_client")
        groups = ((quiet, False), *compliance._GROUPS[1:])
        monkeypatch.setattr(compliance, "_GROUPS", groups)
    with served(servicer(backend(num_envs=2, max_episode_steps=9))) as client:
        verdicts = compliance.run(client.address)
    red = [v for v in verdicts if not v.passed]
    assert any(found in v.name for v in red), told(verdicts) or "the suite is green"
    assert all(v.message for v in red)


def test_a_robot_is_reset_and_never_stepped() -> None:
    class Robot(LocalBackend):
        kind = "robot"

        def step_chunk(self, *args: Any) -> list[ChunkResult]:
            raise AssertionError("the suite moved the robot")

    with served(EnvServicer(Robot(num_envs=1))) as client:
        verdicts = compliance.run(client.address)
    assert not told(verdicts)
    assert sum("would move the robot" in v.message for v in verdicts) > 10
    assert sum(not v.message for v in verdicts) > 15


def test_an_endpoint_in_use_is_left_alone() -> None:
    with (
        served(EnvServicer(LocalBackend(num_envs=2))) as client,
        client.open(1),
        pytest.raises(FailedPrecondition, match="1 of 2"),
    ):
        compliance.run(client.address)


def test_an_endpoint_that_does_not_answer_is_named_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compliance, "TIMEOUT", 0.2)
    server = rpc.Server([])
    with pytest.raises(Exception, match=r"(?i)deadline|unavailable|connect"):
        compliance.run(server.address)
    server.stop(0.0)
