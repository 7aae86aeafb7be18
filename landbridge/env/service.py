"""EnvService over a :class:`landbridge.env.protocol.VectorBackend`: what ``env.proto`` promises."""

from __future__ import annotations

import contextlib
import itertools
import logging
import time
import uuid
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from importlib import metadata
from typing import Any

import numpy as np
from google.protobuf import json_format

from landbridge import rpc, telemetry
from landbridge.contract_codec import contract_to_proto
from landbridge.durations import to_duration, to_seconds
from landbridge.env.protocol import ChunkResult, Observation, VectorBackend
from landbridge.env.sessions import Session, Sessions, Slot, State
from landbridge.errors import (
    DeadlineExceeded,
    FailedPrecondition,
    Internal,
    InvalidArgument,
    LandbridgeError,
    Unimplemented,
)
from landbridge.tensors import decode, encode, expect
from landbridge.v1 import env_pb2 as pb
from landbridge.v1 import env_pb2_grpc, tensor_pb2

log = logging.getLogger(__name__)

MAX_CHUNK = 256
STEP_TIMEOUT = 60.0
"""Seconds a call may take when the caller set no deadline."""


@dataclass(frozen=True)
class _Limit:
    """A call's time: what is left when it begins, and whether its caller still listens when it ends."""

    context: Any
    seconds: float
    deadline: float

    @staticmethod
    def of(context: Any, own: float | None = None) -> _Limit:
        remaining = context.time_remaining()
        seconds = min(STEP_TIMEOUT if remaining is None else remaining, STEP_TIMEOUT if own is None else own)
        if seconds <= 0:
            raise DeadlineExceeded("the call's time was over when it came; nothing was done")
        return _Limit(context, seconds, time.monotonic() + seconds)

    def remaining(self) -> float:
        return self.deadline - time.monotonic()

    def passed(self) -> bool:
        return self.remaining() < 0 or not self.context.is_active()


class EnvServicer(env_pb2_grpc.EnvServiceServicer):
    """The servicer. Calls on disjoint environments run side by side; on one environment one at a time."""

    def __init__(
        self,
        backend: VectorBackend,
        *,
        can_save_state: bool = True,
        can_render: bool = False,
        max_chunk: int = MAX_CHUNK,
    ) -> None:
        self._backend = backend
        self.sessions = self._sessions = Sessions(backend.num_envs, exclusive=backend.kind == "robot")
        self._episodes = itertools.count(1)
        self._instance = uuid.uuid4().hex
        self._can_save_state = can_save_state
        self._can_render = can_render
        self._max_chunk = max_chunk
        self._action = backend.contract.action

    def service(self) -> rpc.Service:
        """To mount on an :class:`landbridge.rpc.Server`."""
        descriptor = pb.DESCRIPTOR.services_by_name["EnvService"]
        return rpc.Service(env_pb2_grpc.add_EnvServiceServicer_to_server, self, descriptor)

    def close(self) -> None:
        """End the thread that watches leases. The backend is its maker's to close."""
        self._sessions.stop()

    def GetInfo(self, request: pb.GetEnvInfoRequest, context: Any) -> pb.EnvInfo:
        """See ``env.proto``."""
        backend = self._backend
        return pb.EnvInfo(
            name=backend.name,
            kind=pb.EnvInfo.KIND_ROBOT if backend.kind == "robot" else pb.EnvInfo.KIND_SIMULATOR,
            contract=contract_to_proto(backend.contract),
            num_envs=backend.num_envs,
            free_envs=self._sessions.free,
            max_episode_steps=backend.max_episode_steps,
            max_chunk=self._max_chunk,
            can_save_state=self._can_save_state,
            can_render=self._can_render,
            server_version=_version(),
            instance_id=self._instance,
        )

    def Open(self, request: pb.OpenRequest, context: Any) -> pb.OpenResponse:
        """See ``env.proto``."""
        lease = to_seconds(request.lease) if request.HasField("lease") else None
        session = self._sessions.open(request.client_name, request.num_envs, lease)
        return pb.OpenResponse(session_id=session.id, num_envs=len(session.slots), lease=to_duration(session.lease))

    def Renew(self, request: pb.RenewRequest, context: Any) -> pb.RenewResponse:
        """See ``env.proto``."""
        with self._sessions.entered(request.session_id):
            return pb.RenewResponse()

    def Close(self, request: pb.CloseRequest, context: Any) -> pb.CloseResponse:
        """See ``env.proto``."""
        self._sessions.close(request.session_id)
        return pb.CloseResponse()

    def Reset(self, request: pb.ResetRequest, context: Any) -> pb.ResetResponse:
        """See ``env.proto``."""
        limit = _Limit.of(context)
        with self._sessions.entered(request.session_id) as session:
            env_ids = session.select(request.env_ids)
            if len(request.seeds) != len(env_ids):
                raise InvalidArgument(
                    f"seeds: {len(request.seeds)} for {len(env_ids)} environments; one each is needed", field="seeds"
                )
            options = json_format.MessageToDict(request.options) if request.HasField("options") else {}
            slots = [session.slots[i] for i in env_ids]
            with session.locked(env_ids, limit.deadline), self._unsettled(slots, limit, State.CREATED):
                results = self._backend.reset([slot.backend_id for slot in slots], list(request.seeds), options)
                for slot in slots:
                    self._begin_episode(slot)
            return pb.ResetResponse(
                observation=_stack([r.observation for r in results]), episode_ids=[slot.episode_id for slot in slots]
            )

    def Step(self, request: pb.StepRequest, context: Any) -> pb.StepResponse:
        """See ``env.proto``."""
        limit = _Limit.of(context)
        with self._sessions.entered(request.session_id) as session:
            env_ids = session.select(request.env_ids)
            action = self._actions(request.action, "action", len(env_ids), chunk=False)
            return self._step(session, env_ids, action[:, None], True, limit)

    def StepChunk(self, request: pb.StepChunkRequest, context: Any) -> pb.StepResponse:
        """See ``env.proto``."""
        with telemetry.span("env.step_chunk"):
            return self._step_chunk(request, _Limit.of(context))

    def StepStream(self, requests: Iterable[pb.StepChunkRequest], context: Any) -> Iterator[pb.StepResponse]:
        """See ``env.proto``."""
        for request in requests:
            own = to_seconds(request.timeout) if request.HasField("timeout") else None
            try:
                response = self._step_chunk(request, _Limit.of(context, own))
            except LandbridgeError as error:
                response = _failure(error)
            except Exception as error:
                log.exception("StepStream failed")
                response = _failure(Internal(f"{type(error).__name__}: {error}"))
            response.request_id = request.request_id
            yield response

    def _step_chunk(self, request: pb.StepChunkRequest, limit: _Limit) -> pb.StepResponse:
        with self._sessions.entered(request.session_id) as session:
            env_ids = session.select(request.env_ids)
            actions = self._actions(request.actions, "actions", len(env_ids), chunk=True)
            every = request.evaluation != pb.StepChunkRequest.EVALUATION_CHUNK_END
            return self._step(session, env_ids, actions, every, limit, request.observation_ids)

    def _actions(self, message: tensor_pb2.Tensor, name: str, count: int, *, chunk: bool) -> np.ndarray:
        array = decode(message, name)
        chunk_axis: tuple[int | None, ...] = (None,) if chunk else ()
        expect(array, name, dtype=self._action.dtype, shape=(count, *chunk_axis, *self._action.shape))
        if chunk and not 1 <= array.shape[1] <= self._max_chunk:
            raise InvalidArgument(
                f"{name}: a chunk of {array.shape[1]} came, 1 to {self._max_chunk} is possible", field=f"{name}.shape"
            )
        if array.dtype.kind == "f" and not np.isfinite(array).all():
            where = [int(i) for i in np.argwhere(~np.isfinite(array))[0]]
            raise InvalidArgument(
                f"{name}{where} is {array[tuple(where)]}; actions must be finite; nothing was stepped",
                field=f"{name}{where}",
            )
        return array

    def _step(
        self,
        session: Session,
        env_ids: list[int],
        actions: np.ndarray,
        every_step: bool,
        limit: _Limit,
        observation_ids: Sequence[int] = (),
    ) -> pb.StepResponse:
        slots = [session.slots[i] for i in env_ids]
        with session.locked(env_ids, limit.deadline):
            session.require_running(env_ids)
            _check_observation_ids(slots, observation_ids)
            with self._unsettled(slots, limit, State.ENDED), _unmoved(slots):
                ids = [slot.backend_id for slot in slots]
                results = self._backend.step_chunk(ids, actions, every_step, limit.remaining())
                for slot, result in zip(slots, results, strict=True):
                    slot.observation_id += 1
                    if not (result.terminated or result.truncated or result.abandoned):
                        slot.state = State.RUNNING
            return _response(results, [slot.observation_id for slot in slots])

    @contextlib.contextmanager
    def _unsettled(self, slots: list[Slot], limit: _Limit, meanwhile: State) -> Iterator[None]:
        """Where the body fails, or its result comes too late to be heard, the environments need a reset."""
        for slot in slots:
            slot.state = meanwhile
        yield
        if limit.passed():
            for slot in slots:
                slot.state = meanwhile
            raise DeadlineExceeded(
                f"not done within {limit.seconds:.3g} s; the environments may have moved: Reset them"
            )

    def _begin_episode(self, slot: Slot) -> None:
        slot.state, slot.observation_id = State.RUNNING, 0
        slot.episode_id = f"{self._instance[:8]}-{next(self._episodes)}"

    def Render(self, request: pb.RenderRequest, context: Any) -> pb.RenderResponse:
        """See ``env.proto``."""
        with self._one(request.session_id, request.env_id, context) as (_, slot):
            if not self._can_render:
                raise Unimplemented("this endpoint renders nothing (EnvInfo.can_render)")
            return pb.RenderResponse(image=encode(self._backend.render(slot.backend_id)))

    def SaveState(self, request: pb.SaveStateRequest, context: Any) -> pb.SaveStateResponse:
        """See ``env.proto``."""
        with self._one(request.session_id, request.env_id, context) as (session, slot):
            self._require_states()
            session.require_running([request.env_id])
            return pb.SaveStateResponse(state=self._backend.save_state(slot.backend_id))

    def RestoreState(self, request: pb.RestoreStateRequest, context: Any) -> pb.RestoreStateResponse:
        """See ``env.proto``. The environment continues as a new episode."""
        limit = _Limit.of(context)
        with self._one(request.session_id, request.env_id, context) as (_, slot):
            self._require_states()
            with self._unsettled([slot], limit, State.CREATED):
                observation = self._backend.restore_state(slot.backend_id, request.state)
                self._begin_episode(slot)
            return pb.RestoreStateResponse(observation=_stack([observation]))

    def _require_states(self) -> None:
        if not self._can_save_state:
            raise Unimplemented("this endpoint saves and restores no states (EnvInfo.can_save_state)")

    @contextlib.contextmanager
    def _one(self, session_id: str, env_id: int, context: Any) -> Iterator[tuple[Session, Slot]]:
        limit = _Limit.of(context)
        with self._sessions.entered(session_id) as session:
            session.select([env_id])
            with session.locked([env_id], limit.deadline):
                yield session, session.slots[env_id]


@contextlib.contextmanager
def _unmoved(slots: list[Slot]) -> Iterator[None]:
    """A backend that refuses a chunk (a robot that is not armed) has moved nothing: the episodes go on."""
    try:
        yield
    except (InvalidArgument, FailedPrecondition):
        for slot in slots:
            slot.state = State.RUNNING
        raise


def _check_observation_ids(slots: list[Slot], observation_ids: Sequence[int]) -> None:
    if not observation_ids:
        return
    if len(observation_ids) != len(slots):
        raise InvalidArgument(
            f"observation_ids: {len(observation_ids)} for {len(slots)} environments; give one each, or none",
            field="observation_ids",
        )
    for index, (slot, given) in enumerate(zip(slots, observation_ids, strict=True)):
        if given > slot.observation_id:
            raise InvalidArgument(
                f"observation_ids[{index}]: {given} was never given in this episode, whose newest is "
                f"{slot.observation_id}: is the chunk of an earlier episode? Nothing was stepped",
                field=f"observation_ids[{index}]",
            )


def _failure(error: LandbridgeError) -> pb.StepResponse:
    return pb.StepResponse(error=pb.StepError(code=error.code.value[0], message=error.message))


def _stack(observations: Sequence[Observation]) -> dict[str, tensor_pb2.Tensor]:
    # np.array stacks small arrays four times faster than np.stack does.
    return {name: encode(np.array([o[name] for o in observations])) for name in observations[0]}


def _response(results: list[ChunkResult], observation_ids: list[int]) -> pb.StepResponse:
    def flags(name: str) -> tensor_pb2.Tensor:
        return encode(np.array([getattr(r, name) for r in results], bool))

    def counts(name: str) -> tensor_pb2.Tensor:
        return encode(np.array([getattr(r, name) for r in results], np.int64))

    return pb.StepResponse(
        observation=_stack([r.observation for r in results]),
        rewards=encode(np.array([r.rewards for r in results], np.float32)),
        evaluated=encode(np.array([r.evaluated for r in results], bool)),
        executed=counts("executed"),
        terminated=flags("terminated"),
        truncated=flags("truncated"),
        abandoned=flags("abandoned"),
        success_once=flags("success_once"),
        success_at_end=flags("success_at_end"),
        episode_steps=counts("episode_step"),
        messages=[r.message for r in results],
        observation_ids=observation_ids,
    )


def _version() -> str:
    try:
        return metadata.version("landbridge")
    except metadata.PackageNotFoundError:
        return "unknown"
