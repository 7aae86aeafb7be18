"""What a campaign asks of RobotService: arming in so many words, the state, an emergency stop."""

from __future__ import annotations

import contextlib

from landbridge import rpc
from landbridge.errors import FailedPrecondition, LandbridgeError
from landbridge.v1 import robot_pb2 as pb
from landbridge.v1 import robot_pb2_grpc

_TIMEOUT = 10.0
_STOP_TIMEOUT = 2.0
_POLICY_CHECKS = frozenset({"finite", "shape", "workspace", "joint", "velocity"})
"""A hold these caused is the policy's doing; others (watchdog, freshness, session, driver) are the set-up's."""


class Robot:
    """The robot's side of one session."""

    def __init__(self, address: str, session_id: str) -> None:
        self._channel = rpc.channel(address)
        self._stub = robot_pb2_grpc.RobotServiceStub(self._channel)
        self._session_id = session_id

    def state(self) -> pb.SafetyState:
        """As the safety layer says."""
        return rpc.call(self._stub.GetSafetyState, pb.GetSafetyStateRequest(), _TIMEOUT)

    def arm(self, *, clear: bool) -> str:
        """Allow motion where it is not allowed; returns what it was before, empty where nothing had to be done.

        ``clear``: a person has looked, and an emergency stop or fault may be cleared.
        """
        state = self.state()
        if state.mode == pb.SAFETY_MODE_ARMED:
            return ""
        if state.mode in (pb.SAFETY_MODE_STOPPED, pb.SAFETY_MODE_FAULT) and not clear:
            raise FailedPrecondition(
                f"the robot is in {mode_name(state)} ({state.reason or 'no reason given'}): look at it, then go on "
                "with --resume --clear"
            )
        rpc.call(
            self._stub.Arm, pb.ArmRequest(session_id=self._session_id, clear_stop=clear, clear_fault=clear), _TIMEOUT
        )
        return mode_name(state)

    def emergency_stop(self, reason: str) -> None:
        """Stop now. What cannot be reached cannot be stopped from here: its watchdog does it."""
        with contextlib.suppress(LandbridgeError):
            rpc.call(self._stub.EmergencyStop, pb.EmergencyStopRequest(reason=reason), _STOP_TIMEOUT)

    def close(self) -> None:
        """Close the connection."""
        self._channel.close()


def mode_name(state: pb.SafetyState) -> str:
    """``ARMED``, ``HOLD`` …"""
    return pb.SafetyMode.Name(state.mode).removeprefix("SAFETY_MODE_")


def caused_by_policy(state: pb.SafetyState) -> bool:
    """Whether what began the hold was about what the policy asked for.

    The safety layer's reason begins with the check that latched; decisions after it are mostly commands refused because
    of the hold. Where a robot words its reasons otherwise, the newest decision has to do.
    """
    check = state.reason.partition(":")[0]
    decisive = [decision.check for decision in state.recent if decision.outcome in ("refused", "hold")]
    if check not in decisive and decisive:
        check = decisive[-1]
    return check in _POLICY_CHECKS
