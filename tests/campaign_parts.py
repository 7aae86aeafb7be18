"""What the tests of campaigns share: a tool that reaches for a cube, served for real, and a policy server beside it."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from landbridge import rpc
from landbridge.contract import Contract, DeltaReference, Quantity, Segment, TensorSpec, Unit
from landbridge.env.protocol import ChunkResult, Observation, ResetResult
from landbridge.env.service import EnvServicer
from landbridge.policies.checkpoint import save_checkpoint
from landbridge.policies.flow import FlowPolicy, FlowPolicyConfig, Statistics
from landbridge.policies.states import to_arrays
from landbridge.policy.client import PolicyClient
from landbridge.v1 import robot_pb2 as pb
from landbridge.v1 import robot_pb2_grpc
from policy_server.backends.torch import TorchBackend
from policy_server.options import PolicyServeConfig
from policy_server.serve import PolicyServer, build

torch.set_num_threads(1)


def _position(name: str, start: int, quantity: Quantity) -> Segment:
    return Segment(name, start, 3, quantity, Unit.METRE, "base")


GRIPPER = Segment("gripper", 3, 1, Quantity.GRIPPER, Unit.METRE, gripper_closed=0.0, gripper_open=0.08)
STATE = (
    _position("tcp_position", 0, Quantity.EE_POSITION),
    _position("cube_position", 3, Quantity.OBJECT_POSITION),
    _position("goal_position", 6, Quantity.GOAL_POSITION),
)
DELTA = Segment(
    "tcp_delta", 0, 3, Quantity.EE_POSITION_DELTA, Unit.METRE, "base", delta_reference=DeltaReference.MEASURED
)
CONTRACT = Contract(
    observation=(TensorSpec("state", (9,), segments=STATE),),
    action=TensorSpec(
        "action", (4,), low=(-0.1, -0.1, -0.1, 0.0), high=(0.1, 0.1, 0.1, 0.08), segments=(DELTA, GRIPPER)
    ),
    control_rate_hz=20.0,
    task="reach",
)
CONFIG = FlowPolicyConfig(hidden=(16,), critic_hidden=(8,), critic_inputs=("state",))
SUCCESS_AT = 0.12
"""Metres from the tool to the cube: near enough for random policies to succeed at times."""


class Reach:
    """A VectorBackend: success when the tool is near the cube. Remembers what it was told to do."""

    name = "reach"
    num_envs = 1
    max_episode_steps = 12

    def __init__(self, contract: Contract = CONTRACT, kind: str = "simulator") -> None:
        self.contract, self.kind = contract, kind
        self.resets: list[int] = []
        self.chunks = 0
        self.on_step: Callable[[], None] = lambda: None
        self._state, self._steps, self._once = np.zeros(9, np.float32), 0, False

    def reset(self, env_ids: Sequence[int], seeds: Sequence[int], options: dict[str, Any]) -> list[ResetResult]:
        self.resets.append(seeds[0])
        self._state = np.random.default_rng(seeds[0]).uniform(-0.1, 0.1, 9).astype(np.float32)
        self._steps, self._once = 0, False
        return [ResetResult({"state": self._state.copy()})]

    def step_chunk(
        self, env_ids: Sequence[int], actions: np.ndarray, evaluate_every_step: bool, deadline_s: float
    ) -> list[ChunkResult]:
        self.chunks += 1
        self.on_step()
        count = min(actions.shape[1], self.max_episode_steps - self._steps)
        near = [self._step(action) for action in actions[0, :count]]
        evaluated = np.arange(actions.shape[1]) < count
        return [
            ChunkResult(
                observation={"state": self._state.copy()},
                rewards=np.where(evaluated, 0.0, 0.0).astype(np.float32),
                evaluated=evaluated,
                executed=count,
                terminated=False,
                truncated=self._steps == self.max_episode_steps,
                abandoned=False,
                success_once=self._once,
                success_at_end=near[-1],
                episode_step=self._steps,
            )
        ]

    def _step(self, action: np.ndarray) -> bool:
        self._state[:3] += action[:3]
        self._steps += 1
        near = bool(np.linalg.norm(self._state[:3] - self._state[3:6]) < SUCCESS_AT)
        self._once |= near
        return near

    def render(self, env_id: int) -> np.ndarray:
        raise NotImplementedError

    def save_state(self, env_id: int) -> bytes:
        raise NotImplementedError

    def restore_state(self, env_id: int, state: bytes) -> Observation:
        raise NotImplementedError

    def close(self) -> None:
        pass


class Safety(robot_pb2_grpc.RobotServiceServicer):
    """RobotService's modes, without a robot. ``requests`` are those that came."""

    def __init__(self) -> None:
        self.mode, self.reason = pb.SAFETY_MODE_DISARMED, ""
        self.recent: list[pb.SafetyDecision] = []
        self.requests: list[Any] = []

    def hold(self, check: str) -> None:
        """As the safety layer does: the reason is the first cause, later commands are refused for the hold itself."""
        self.mode, self.reason = pb.SAFETY_MODE_HOLD, f"{check}: because a test wants it"
        self.recent.append(pb.SafetyDecision(check=check, outcome="hold"))
        self.recent.append(pb.SafetyDecision(check="session", outcome="refused"))

    def state(self) -> pb.SafetyState:
        return pb.SafetyState(mode=self.mode, reason=self.reason, recent=self.recent)

    def Arm(self, request: pb.ArmRequest, context: Any) -> pb.ArmResponse:
        self.requests.append(request)
        self.mode = pb.SAFETY_MODE_ARMED
        return pb.ArmResponse(state=self.state())

    def EmergencyStop(self, request: pb.EmergencyStopRequest, context: Any) -> pb.EmergencyStopResponse:
        self.requests.append(request)
        self.mode = pb.SAFETY_MODE_STOPPED
        return pb.EmergencyStopResponse(state=self.state())

    def GetSafetyState(self, request: pb.GetSafetyStateRequest, context: Any) -> pb.SafetyState:
        return self.state()

    def service(self) -> rpc.Service:
        descriptor = pb.DESCRIPTOR.services_by_name["RobotService"]
        return rpc.Service(robot_pb2_grpc.add_RobotServiceServicer_to_server, self, descriptor)


def make_policy(version: int, contract: Contract = CONTRACT) -> FlowPolicy:
    torch.manual_seed(version)
    size = contract.observation[0].shape[0]
    unscaled = {"state": ([0.0] * size, [1.0] * size)}
    return FlowPolicy(contract, CONFIG, Statistics(unscaled, [0.0, 0.0, 0.0, 0.04], [0.05, 0.05, 0.05, 0.04]))


@contextlib.contextmanager
def policy_server(
    folder: Path, versions: Sequence[int] = (1,), contract: Contract = CONTRACT
) -> Iterator[PolicyServer]:
    """Serves version 0 from a checkpoint, and ``versions`` that were pushed."""
    checkpoint = save_checkpoint(folder / "checkpoint", make_policy(0, contract), version=0, training_step=0)
    server = build(PolicyServeConfig(checkpoint=checkpoint, port=0), TorchBackend(checkpoint, threads=1))
    server.start()
    try:
        with PolicyClient(server.address) as client:
            for version in versions:
                state = to_arrays(make_policy(version, contract).state_dict())
                client.push_weights(state, version=version, architecture_hash=client.info().architecture_hash)
        yield server
    finally:
        server.stop(0.2)


@contextlib.contextmanager
def env_server(backend: Reach, *services: rpc.Service) -> Iterator[str]:
    """Serves ``backend``; yields the address."""
    servicer = EnvServicer(backend)
    server = rpc.Server([servicer.service(), *services])
    try:
        yield server.start()
    finally:
        server.stop(0.0)
        servicer.close()
