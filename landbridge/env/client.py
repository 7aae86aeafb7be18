"""Client of EnvService: numpy in, numpy out. Needs grpcio, protobuf and numpy.

with EnvClient("127.0.0.1:50052") as env, env.open(num_envs=2) as session:
    first = session.reset(seeds=[1, 2])
    step = session.step_chunk(actions)          # [2, C, A] in physical units
"""

from __future__ import annotations

import collections
import contextlib
import itertools
import queue
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Literal

import grpc
import numpy as np
from google.protobuf import json_format, struct_pb2

from landbridge import rpc
from landbridge.contract import Contract
from landbridge.contract_codec import contract_from_proto
from landbridge.durations import to_duration, to_seconds
from landbridge.errors import (
    DeadlineExceeded,
    FailedPrecondition,
    Internal,
    LandbridgeError,
    Unavailable,
    from_code,
    from_rpc_error,
)
from landbridge.tensors import decode, decode_map, encode
from landbridge.v1 import env_pb2 as pb
from landbridge.v1 import env_pb2_grpc

Evaluation = Literal["every_step", "chunk_end"]
"""On which steps reward, success and termination are computed; ``chunk_end`` is cheaper in some simulators."""
_EVALUATIONS: dict[Evaluation, Any] = {
    "every_step": pb.StepChunkRequest.EVALUATION_EVERY_STEP,
    "chunk_end": pb.StepChunkRequest.EVALUATION_CHUNK_END,
}
ANSWER_MARGIN = 2.0
"""Seconds a stream's answer may come after the server's own limit for it, before the client gives the stream up."""


@dataclass(frozen=True)
class EnvDescription:
    """What an endpoint says of itself."""

    name: str
    kind: str
    """``simulator`` or ``robot``."""
    contract: Contract
    num_envs: int
    free_envs: int
    max_episode_steps: int
    max_chunk: int
    can_save_state: bool
    can_render: bool
    instance_id: str


@dataclass(frozen=True)
class Reset:
    """First observations {name: [n, …]} and episode ids."""

    observation: dict[str, np.ndarray]
    episode_ids: tuple[str, ...]


@dataclass(frozen=True)
class StepResult:
    """Results of a step or chunk in n environments; the arrays are the caller's own to write to."""

    observation: dict[str, np.ndarray]
    """{name: [n, …]} after the last executed step of each; of a finished episode its final observation."""
    rewards: np.ndarray
    """[n, C] float32; 0 where not evaluated or not executed."""
    evaluated: np.ndarray
    """[n, C] bool: where reward, success and termination were computed."""
    executed: np.ndarray
    """[n] int64: actions really executed, 0 … C."""
    terminated: np.ndarray
    """[n] bool: the task's own end."""
    truncated: np.ndarray
    """[n] bool: a time limit or an operator's stop."""
    abandoned: np.ndarray
    """[n] bool: the episode was lost; nothing may be learned across the gap."""
    success_once: np.ndarray
    """[n] bool: on any evaluated step of this episode."""
    success_at_end: np.ndarray
    """[n] bool: on the last evaluated one."""
    episode_steps: np.ndarray
    """[n] int64: steps of the episode so far."""
    messages: tuple[str, ...]
    """One an environment: why it was abandoned, or what a safety layer changed; empty otherwise."""
    observation_ids: tuple[int, ...]
    """One an environment, ascending within an episode."""

    @property
    def done(self) -> np.ndarray:
        """[n] bool: the episode is over, for whatever reason."""
        return self.terminated | self.truncated | self.abandoned


class EnvClient:
    """One connection to an environment endpoint."""

    def __init__(self, address: str, timeout: float = 60.0) -> None:
        """``timeout`` is the deadline in seconds of calls that state none."""
        self.address = address
        self.timeout = timeout
        self._channel = rpc.channel(address)
        self.stub = env_pb2_grpc.EnvServiceStub(self._channel)

    def info(self, *, wait: bool = False) -> EnvDescription:
        """What is offered; ``wait`` waits for a server that is still starting."""
        info = rpc.call(self.stub.GetInfo, pb.GetEnvInfoRequest(), self.timeout, wait=wait)
        return EnvDescription(
            name=info.name,
            kind="robot" if info.kind == pb.EnvInfo.KIND_ROBOT else "simulator",
            contract=contract_from_proto(info.contract),
            num_envs=info.num_envs,
            free_envs=info.free_envs,
            max_episode_steps=info.max_episode_steps,
            max_chunk=info.max_chunk,
            can_save_state=info.can_save_state,
            can_render=info.can_render,
            instance_id=info.instance_id,
        )

    def open(
        self, num_envs: int = 0, *, name: str = "", lease: float | None = None, stream: bool = False
    ) -> EnvSession:
        """Take environments (0: all); the lease is kept while the session object is open.

        ``stream``: the session's chunks travel on one persistent StepStream, the cheapest way for many small chunks.
        """
        request = pb.OpenRequest(
            client_name=name, num_envs=num_envs, lease=None if lease is None else to_duration(lease)
        )
        granted = rpc.call(self.stub.Open, request, self.timeout)
        return EnvSession(self, granted.session_id, granted.num_envs, to_seconds(granted.lease), stream)

    def close(self) -> None:
        """Close the connection."""
        self._channel.close()

    def __enter__(self) -> EnvClient:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()


class EnvSession:
    """Environments held by this client, numbered from 0. A thread renews the lease at a third of its length."""

    def __init__(self, client: EnvClient, session_id: str, num_envs: int, lease: float, stream: bool = False) -> None:
        self._client = client
        self._stub = client.stub
        self.id = session_id
        self.num_envs = num_envs
        self._use_stream = stream
        self._stream: StepStream | None = None
        self._stream_lock = threading.Lock()
        self._closed = threading.Event()
        self._keeper = threading.Thread(target=self._keep, args=(lease / 3.0,), name="lease", daemon=True)
        self._keeper.start()

    def _keep(self, period: float) -> None:
        while not self._closed.wait(period):
            try:
                rpc.call(self._stub.Renew, pb.RenewRequest(session_id=self.id), 5.0)
            except LandbridgeError:
                pass  # the next call the user makes will say it
            except ValueError:  # grpc's word for a channel that was closed: nothing is left to keep
                return

    def reset(
        self,
        env_ids: Sequence[int] = (),
        seeds: Sequence[int] = (),
        options: Mapping[str, Any] | None = None,
        timeout: float | None = None,
    ) -> Reset:
        """Start episodes in ``env_ids`` (none named: all); one seed an environment, always."""
        made = None
        if options:
            made = json_format.ParseDict(dict(options), struct_pb2.Struct())
        request = pb.ResetRequest(session_id=self.id, env_ids=env_ids, seeds=seeds, options=made)
        response = rpc.call(self._stub.Reset, request, timeout or self._client.timeout)
        return Reset(decode_map(response.observation, "observation", writable=True), tuple(response.episode_ids))

    def step(self, action: np.ndarray, env_ids: Sequence[int] = (), timeout: float | None = None) -> StepResult:
        """One action in each environment: [n, …A]; rewards and evaluated come back as [n, 1]."""
        request = pb.StepRequest(session_id=self.id, env_ids=env_ids, action=encode(action))
        return _parse(rpc.call(self._stub.Step, request, timeout or self._client.timeout))

    def step_chunk(
        self,
        actions: np.ndarray,
        env_ids: Sequence[int] = (),
        evaluation: Evaluation = "every_step",
        timeout: float | None = None,
        observation_ids: Sequence[int] = (),
    ) -> StepResult:
        """A chunk in each environment: [n, C, …A], physical units.

        ``observation_ids`` say which observations the chunks were computed from (one an environment, 0 at a reset): a
        robot refuses a chunk that is too old. They do not travel on a session's stream.
        """
        limit = timeout or self._client.timeout
        if self._use_stream:
            return self._step_on_stream(actions, env_ids, evaluation, limit)
        request = self._chunk(0, actions, env_ids, evaluation, None)
        request.observation_ids.extend(observation_ids)
        return _parse(rpc.call(self._stub.StepChunk, request, limit))

    def _step_on_stream(
        self, actions: np.ndarray, env_ids: Sequence[int], evaluation: Evaluation, limit: float
    ) -> StepResult:
        with self._stream_lock:
            if self._stream is None or not self._stream.usable:
                self._stream = self.stream()
            self._stream.send(actions, env_ids, evaluation, timeout=limit)
            return self._stream.receive()

    def stream(self) -> StepStream:
        """A stream of one's own, to have several chunks under way: ``send`` and ``receive`` apart."""
        return StepStream(self, self._stub, self._client.timeout)

    def _chunk(
        self,
        request_id: int,
        actions: np.ndarray,
        env_ids: Sequence[int],
        evaluation: Evaluation,
        timeout: float | None,
    ) -> pb.StepChunkRequest:
        return pb.StepChunkRequest(
            session_id=self.id,
            env_ids=env_ids,
            actions=encode(actions),
            evaluation=_EVALUATIONS[evaluation],
            request_id=request_id,
            timeout=None if timeout is None else to_duration(timeout),
        )

    def render(self, env_id: int) -> np.ndarray:
        """RGB [H, W, 3] uint8."""
        request = pb.RenderRequest(session_id=self.id, env_id=env_id)
        return decode(rpc.call(self._stub.Render, request, self._client.timeout).image, "image", writable=True)

    def save_state(self, env_id: int) -> bytes:
        """The exact state of one environment."""
        request = pb.SaveStateRequest(session_id=self.id, env_id=env_id)
        return rpc.call(self._stub.SaveState, request, self._client.timeout).state

    def restore_state(self, env_id: int, state: bytes) -> dict[str, np.ndarray]:
        """Continue from a saved state; returns the observation there, {name: [1, …]}."""
        request = pb.RestoreStateRequest(session_id=self.id, env_id=env_id, state=state)
        response = rpc.call(self._stub.RestoreState, request, self._client.timeout)
        return decode_map(response.observation, "observation", writable=True)

    def close(self) -> None:
        """Give the environments back."""
        if not self._closed.is_set():
            self._closed.set()
            if self._stream is not None:
                self._stream.close()
            with contextlib.suppress(LandbridgeError, ValueError):  # ValueError: the channel is closed already
                rpc.call(self._stub.Close, pb.CloseRequest(session_id=self.id), 5.0)

    def __enter__(self) -> EnvSession:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()


class StepStream:
    """One StepStream call of a session, for one thread. After a transport error open another one."""

    def __init__(self, session: EnvSession, stub: env_pb2_grpc.EnvServiceStub, timeout: float) -> None:
        self._session = session
        self._timeout = timeout
        self._ids = itertools.count(1)
        self._outgoing: queue.SimpleQueue[pb.StepChunkRequest | None] = queue.SimpleQueue()
        self._waiting: collections.deque[tuple[int, float]] = collections.deque()
        self._closed = threading.Event()
        self._overdue = False
        self._answers: Any = stub.StepStream(iter(self._outgoing.get, None))
        threading.Thread(target=self._watch, name="step-stream", daemon=True).start()

    @property
    def usable(self) -> bool:
        """False once it was closed or failed."""
        return not self._closed.is_set()

    def _watch(self) -> None:
        """A stream has no deadline for one answer: this thread ends the stream when the oldest is overdue."""
        while not self._closed.wait(0.25):
            with contextlib.suppress(IndexError):
                if time.monotonic() > self._waiting[0][1]:
                    self._overdue = True
                    self._answers.cancel()

    def send(
        self,
        actions: np.ndarray,
        env_ids: Sequence[int] = (),
        evaluation: Evaluation = "every_step",
        timeout: float | None = None,
    ) -> None:
        """Send a chunk [n, C, …A]; its result is a later :meth:`receive`'s, within ``timeout`` seconds from now."""
        if not self.usable:
            raise FailedPrecondition("this stream was closed by an earlier error; open another one")
        limit = self._timeout if timeout is None else timeout
        request = self._session._chunk(next(self._ids), actions, env_ids, evaluation, limit)
        self._waiting.append((request.request_id, time.monotonic() + limit + ANSWER_MARGIN))
        self._outgoing.put(request)

    def receive(self) -> StepResult:
        """The result of the oldest chunk not yet answered. A refused chunk raises and the stream goes on."""
        if not self._waiting:
            raise FailedPrecondition("nothing was sent that is still unanswered")
        try:
            response = next(self._answers)
        except StopIteration:
            self.close()
            raise Unavailable("the server ended the stream; open another one", retry_after=0.5) from None
        except grpc.RpcError as error:
            self.close()
            if self._overdue:
                raise DeadlineExceeded("no answer came in time; the environments may have moved: reset them") from error
            raise from_rpc_error(error) from error
        wanted, _ = self._waiting.popleft()
        if response.request_id != wanted:
            self.close()
            raise Internal(f"the answer to chunk {response.request_id} came for chunk {wanted}")
        if response.HasField("error"):
            raise from_code(response.error.code, response.error.message)
        return _parse(response)

    def close(self) -> None:
        """End the stream; what is unanswered is lost."""
        if self.usable:
            self._closed.set()
            self._outgoing.put(None)
            self._answers.cancel()


def _parse(response: pb.StepResponse) -> StepResult:
    return StepResult(
        observation=decode_map(response.observation, "observation", writable=True),
        messages=tuple(response.messages),
        observation_ids=tuple(response.observation_ids),
        **{
            name: decode(getattr(response, name), name, writable=True)
            for name in (
                "rewards",
                "evaluated",
                "executed",
                "terminated",
                "truncated",
                "abandoned",
                "success_once",
                "success_at_end",
                "episode_steps",
            )
        },
    )
