"""RobotService: arming, stopping, the safety layer's state, telemetry; what ``robot.proto`` promises."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import numpy as np

from landbridge import rpc
from landbridge.durations import to_duration
from landbridge.env.sessions import Sessions
from landbridge.errors import InvalidArgument
from landbridge.tensors import encode_map
from landbridge.v1 import robot_pb2 as pb
from landbridge.v1 import robot_pb2_grpc
from robot_bridge.drivers.protocol import Driver, RobotState
from robot_bridge.environment import RobotEnvironment
from robot_bridge.safety import Recorded

_LOOK = 0.002
"""Seconds between looks for a new measurement."""


class RobotServicer(robot_pb2_grpc.RobotServiceServicer):
    """The servicer, on the port of the robot's EnvService."""

    def __init__(self, environment: RobotEnvironment, driver: Driver, sessions: Sessions) -> None:
        self._environment = environment
        self._driver = driver
        self._sessions = sessions

    def service(self) -> rpc.Service:
        """To mount on an :class:`landbridge.rpc.Server`."""
        descriptor = pb.DESCRIPTOR.services_by_name["RobotService"]
        return rpc.Service(robot_pb2_grpc.add_RobotServiceServicer_to_server, self, descriptor)

    def Arm(self, request: pb.ArmRequest, context: Any) -> pb.ArmResponse:
        """See ``robot.proto``: the session that holds the robot, and nobody else."""
        with self._sessions.entered(request.session_id):
            self._environment.arm(clear_stop=request.clear_stop, clear_fault=request.clear_fault)
            session_id = request.session_id
            self._environment.session_alive = lambda: self._sessions.alive(session_id)
            return pb.ArmResponse(state=self._state())

    def EmergencyStop(self, request: pb.EmergencyStopRequest, context: Any) -> pb.EmergencyStopResponse:
        """See ``robot.proto``: never refused."""
        self._environment.emergency_stop(request.reason or "asked for by a client")
        return pb.EmergencyStopResponse(state=self._state())

    def GetSafetyState(self, request: pb.GetSafetyStateRequest, context: Any) -> pb.SafetyState:
        """See ``robot.proto``."""
        return self._state()

    def StreamTelemetry(self, request: pb.StreamTelemetryRequest, context: Any) -> Iterator[pb.Telemetry]:
        """See ``robot.proto``."""
        if not 0 <= request.max_rate_hz <= 1000:
            raise InvalidArgument(f"max_rate_hz {request.max_rate_hz:g}: 0 to 1000", field="max_rate_hz")
        pause = 1.0 / request.max_rate_hz if request.max_rate_hz else 0.0
        layer, told = self._environment.layer, time.monotonic()
        sent: tuple[float, int] | None = None
        while context.is_active():
            state = self._driver.latest_state()
            with layer.lock:
                decisions = [_decision(d) for d in layer.recent if d.time > told]
                told = max([told, *(d.time for d in layer.recent)])
                news = state.measured_at, layer.mode.value
            if decisions or news != sent:
                sent = news
                yield _telemetry(state, news[1], decisions)
                time.sleep(pause)
            else:
                time.sleep(_LOOK)

    def _state(self) -> pb.SafetyState:
        layer = self._environment.layer
        age = to_duration(max(0.0, self._driver.latest_state().age(time.monotonic())))
        with layer.lock:
            return pb.SafetyState(
                mode=_mode(layer.mode.value),
                stop_generation=layer.generation,
                reason=layer.reason,
                recent=[_decision(d) for d in layer.recent],
                counts=dict(layer.counts),
                observation_age=age,
            )


def _mode(number: int) -> Any:
    return pb.SafetyMode.Name(number)


def _telemetry(state: RobotState, mode: int, decisions: list[pb.SafetyDecision]) -> pb.Telemetry:
    measured = {
        "joint_position": state.joint_position,
        "joint_velocity": state.joint_velocity,
        "tool_position": state.tool_position,
        "gripper_width": np.array([state.gripper_width]),
    }
    return pb.Telemetry(time=state.measured_at, measured=encode_map(measured), mode=_mode(mode), decisions=decisions)


def _decision(recorded: Recorded) -> pb.SafetyDecision:
    return pb.SafetyDecision(
        check=recorded.check,
        outcome=recorded.outcome,
        message=recorded.message,
        asked=recorded.asked,
        done=recorded.done,
        time=recorded.time,
    )
