"""EnvService over a :class:`landbridge.env.protocol.VectorBackend`: what ``env.proto`` promises."""

from __future__ import annotations

import contextlib
import itertools
import threading
import uuid
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np
from google.protobuf import duration_pb2, json_format

from landbridge import rpc, telemetry
from landbridge.contract_codec import contract_to_proto
from landbridge.env.protocol import ChunkResult, Observation, VectorBackend
from landbridge.env.sessions import Session, Sessions, State
from landbridge.errors import InvalidArgument, LandbridgeError
from landbridge.tensors import decode, encode, expect
from landbridge.v1 import env_pb2 as pb
from landbridge.v1 import env_pb2_grpc, tensor_pb2

MAX_CHUNK = 256
STEP_TIMEOUT = 60.0
"""Seconds a step may take when the caller set no deadline."""


class EnvServicer(env_pb2_grpc.EnvServiceServicer):
    """The servicer. Calls on disjoint environments run side by side; on one environment one at a time."""

    def __init__(self, backend: VectorBackend, *, can_save_state: bool = True, can_render: bool = False) -> None:
        self._backend = backend
        self._sessions = Sessions(backend.num_envs, exclusive=backend.kind == "robot")
        self._episodes = itertools.count(1)
        self._instance = uuid.uuid4().hex
        self._can_save_state = can_save_state
        self._can_render = can_render
        self._action_shape = backend.contract.action.shape

    def service(self) -> rpc.Service:
        """To mount on an :class:`landbridge.rpc.Server`."""
        descriptor = pb.DESCRIPTOR.services_by_name["EnvService"]
        return rpc.Service(env_pb2_grpc.add_EnvServiceServicer_to_server, self, descriptor)

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
            max_chunk=MAX_CHUNK,
            can_save_state=self._can_save_state,
            can_render=self._can_render,
            instance_id=self._instance,
        )

    def Open(self, request: pb.OpenRequest, context: Any) -> pb.OpenResponse:
        """See ``env.proto``."""
        lease = request.lease.ToNanoseconds() / 1e9 if request.HasField("lease") else None
        session = self._sessions.open(request.client_name, request.num_envs, lease)
        granted = duration_pb2.Duration()
        granted.FromNanoseconds(int(session.lease * 1e9))
        return pb.OpenResponse(session_id=session.id, num_envs=len(session.slots), lease=granted)

    def Renew(self, request: pb.RenewRequest, context: Any) -> pb.RenewResponse:
        """See ``env.proto``."""
        with self._session(request.session_id):
            return pb.RenewResponse()

    def Close(self, request: pb.CloseRequest, context: Any) -> pb.CloseResponse:
        """See ``env.proto``."""
        self._sessions.close(request.session_id)
        return pb.CloseResponse()

    def Reset(self, request: pb.ResetRequest, context: Any) -> pb.ResetResponse:
        """See ``env.proto``."""
        with self._session(request.session_id) as session:
            env_ids = session.select(request.env_ids)
            if len(request.seeds) != len(env_ids):
                raise InvalidArgument(
                    f"seeds: {len(request.seeds)} for {len(env_ids)} environments; one each is needed", field="seeds"
                )
            options = json_format.MessageToDict(request.options) if request.HasField("options") else {}
            with _locked(session, env_ids):
                for i in env_ids:  # whatever goes wrong below, the old episode is over
                    session.slots[i].state = State.CREATED
                results = self._backend.reset(_backend_ids(session, env_ids), list(request.seeds), options)
                for i in env_ids:
                    slot = session.slots[i]
                    slot.state, slot.observation_id = State.RUNNING, 0
                    slot.episode_id = f"{self._instance[:8]}-{next(self._episodes)}"
            return pb.ResetResponse(
                observation=_stack([r.observation for r in results]),
                episode_ids=[session.slots[i].episode_id for i in env_ids],
            )

    def Step(self, request: pb.StepRequest, context: Any) -> pb.StepResponse:
        """See ``env.proto``."""
        with self._session(request.session_id) as session:
            env_ids = session.select(request.env_ids)
            action = self._actions(request.action, "action", len(env_ids), chunk=False)
            return self._step(session, env_ids, action[:, None], True, _limit(context), ())

    def StepChunk(self, request: pb.StepChunkRequest, context: Any) -> pb.StepResponse:
        """See ``env.proto``."""
        with telemetry.span("env.step_chunk"):
            return self._step_chunk(request, _limit(context))

    def StepStream(self, requests: Iterable[pb.StepChunkRequest], context: Any) -> Iterator[pb.StepResponse]:
        """See ``env.proto``."""
        for request in requests:
            limit = request.timeout.ToNanoseconds() / 1e9 if request.HasField("timeout") else _limit(context)
            try:
                response = self._step_chunk(request, limit)
            except LandbridgeError as error:
                response = pb.StepResponse(error=pb.StepError(code=error.code.value[0], message=error.message))
            response.request_id = request.request_id
            yield response

    def _step_chunk(self, request: pb.StepChunkRequest, limit: float) -> pb.StepResponse:
        with self._session(request.session_id) as session:
            env_ids = session.select(request.env_ids)
            actions = self._actions(request.actions, "actions", len(env_ids), chunk=True)
            every = request.evaluation != pb.StepChunkRequest.EVALUATION_CHUNK_END
            return self._step(session, env_ids, actions, every, limit, request.observation_ids)

    def _actions(self, message: tensor_pb2.Tensor, name: str, count: int, *, chunk: bool) -> np.ndarray:
        array = decode(message, name)
        chunk_axis: tuple[int | None, ...] = (None,) if chunk else ()
        expect(array, name, dtype=self._backend.contract.action.dtype, shape=(count, *chunk_axis, *self._action_shape))
        if chunk and not 1 <= array.shape[1] <= MAX_CHUNK:
            raise InvalidArgument(
                f"{name}: a chunk of {array.shape[1]} came, 1 to {MAX_CHUNK} is possible", field=f"{name}.shape"
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
        limit: float,
        observation_ids: Sequence[int],
    ) -> pb.StepResponse:
        if observation_ids and len(observation_ids) != len(env_ids):
            raise InvalidArgument(
                f"observation_ids: {len(observation_ids)} for {len(env_ids)} environments", field="observation_ids"
            )
        with _locked(session, env_ids):
            session.require_running(env_ids)
            results = self._backend.step_chunk(_backend_ids(session, env_ids), actions, every_step, limit)
            for i, result in zip(env_ids, results, strict=True):
                slot = session.slots[i]
                slot.observation_id += 1
                if result.terminated or result.truncated or result.abandoned:
                    slot.state = State.ENDED
            ids = [session.slots[i].observation_id for i in env_ids]
        return _response(results, ids)

    def Render(self, request: pb.RenderRequest, context: Any) -> pb.RenderResponse:
        """See ``env.proto``."""
        with self._one(request.session_id, request.env_id) as (_, backend_id):
            return pb.RenderResponse(image=encode(self._backend.render(backend_id)))

    def SaveState(self, request: pb.SaveStateRequest, context: Any) -> pb.SaveStateResponse:
        """See ``env.proto``."""
        with self._one(request.session_id, request.env_id) as (session, backend_id):
            session.require_running([request.env_id])
            return pb.SaveStateResponse(state=self._backend.save_state(backend_id))

    def RestoreState(self, request: pb.RestoreStateRequest, context: Any) -> pb.RestoreStateResponse:
        """See ``env.proto``."""
        with self._one(request.session_id, request.env_id) as (session, backend_id):
            slot = session.slots[request.env_id]
            slot.state = State.CREATED
            observation = self._backend.restore_state(backend_id, request.state)
            slot.state, slot.observation_id = State.RUNNING, 0
            slot.episode_id = f"{self._instance[:8]}-{next(self._episodes)}"
            return pb.RestoreStateResponse(observation=_stack([observation]))

    @contextlib.contextmanager
    def _session(self, session_id: str) -> Iterator[Session]:
        session = self._sessions.enter(session_id)
        try:
            yield session
        finally:
            self._sessions.leave(session)

    @contextlib.contextmanager
    def _one(self, session_id: str, env_id: int) -> Iterator[tuple[Session, int]]:
        with self._session(session_id) as session:
            session.select([env_id])
            with session.slots[env_id].lock:
                yield session, session.slots[env_id].backend_id


@contextlib.contextmanager
def _locked(session: Session, env_ids: list[int]) -> Iterator[None]:
    """One call at a time in each environment; taken in order, so that two calls cannot wait for each other."""
    with contextlib.ExitStack() as stack:
        for i in sorted(env_ids):
            stack.enter_context(_held(session.slots[i].lock))
        yield


@contextlib.contextmanager
def _held(lock: threading.Lock) -> Iterator[None]:
    with lock:
        yield


def _backend_ids(session: Session, env_ids: list[int]) -> list[int]:
    return [session.slots[i].backend_id for i in env_ids]


def _limit(context: Any) -> float:
    remaining: float | None = context.time_remaining()
    return STEP_TIMEOUT if remaining is None else remaining


def _stack(observations: Sequence[Observation]) -> dict[str, tensor_pb2.Tensor]:
    return {name: encode(np.stack([o[name] for o in observations])) for name in observations[0]}


def _response(results: list[ChunkResult], observation_ids: list[int]) -> pb.StepResponse:
    def flags(name: str) -> tensor_pb2.Tensor:
        return encode(np.array([getattr(r, name) for r in results], bool))

    def counts(name: str) -> tensor_pb2.Tensor:
        return encode(np.array([getattr(r, name) for r in results], np.int64))

    return pb.StepResponse(
        observation=_stack([r.observation for r in results]),
        rewards=encode(np.stack([r.rewards for r in results]).astype(np.float32, copy=False)),
        evaluated=encode(np.stack([r.evaluated for r in results])),
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
