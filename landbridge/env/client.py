"""Client of EnvService: numpy in, numpy out. Needs grpcio, protobuf and numpy.

with EnvClient("127.0.0.1:50052") as env, env.open(num_envs=2) as session:
    reset = session.reset(seeds=[1, 2])
    step = session.step_chunk(actions)          # [2, C, A] in physical units
"""

from __future__ import annotations

import contextlib
import itertools
import queue
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Any

import grpc
import numpy as np
from google.protobuf import duration_pb2, json_format, struct_pb2

from landbridge import rpc
from landbridge.contract import Contract
from landbridge.contract_codec import contract_from_proto
from landbridge.errors import FailedPrecondition, Internal, LandbridgeError, Unavailable, from_code, from_rpc_error
from landbridge.tensors import decode, decode_map, encode
from landbridge.v1 import env_pb2 as pb
from landbridge.v1 import env_pb2_grpc


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
class Step:
    """Results of a step or chunk in n environments; fields as in ``StepResponse`` of ``env.proto``."""

    observation: dict[str, np.ndarray]
    rewards: np.ndarray
    evaluated: np.ndarray
    executed: np.ndarray
    terminated: np.ndarray
    truncated: np.ndarray
    abandoned: np.ndarray
    success_once: np.ndarray
    success_at_end: np.ndarray
    episode_steps: np.ndarray
    messages: tuple[str, ...]
    observation_ids: tuple[int, ...]

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

    def open(self, num_envs: int = 0, *, name: str = "", lease: float | None = None) -> EnvSession:
        """Take environments (0: all); the lease is kept while the session object is open."""
        request = pb.OpenRequest(client_name=name, num_envs=num_envs, lease=None if lease is None else _duration(lease))
        granted = rpc.call(self.stub.Open, request, self.timeout)
        return EnvSession(self, granted.session_id, granted.num_envs, granted.lease.ToNanoseconds() / 1e9)

    def close(self) -> None:
        """Close the connection."""
        self._channel.close()

    def __enter__(self) -> EnvClient:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()


class EnvSession:
    """Environments held by this client, numbered from 0. A thread renews the lease at a third of its length."""

    def __init__(self, client: EnvClient, session_id: str, num_envs: int, lease: float) -> None:
        self._client = client
        self._stub = client.stub
        self.id = session_id
        self.num_envs = num_envs
        self._closed = threading.Event()
        self._keeper = threading.Thread(target=self._keep, args=(lease / 3.0,), name="lease", daemon=True)
        self._keeper.start()

    def _keep(self, period: float) -> None:
        while not self._closed.wait(period):
            with contextlib.suppress(LandbridgeError):  # the next call the user makes will say it
                rpc.call(self._stub.Renew, pb.RenewRequest(session_id=self.id), 5.0)

    def reset(
        self,
        seeds: Sequence[int],
        env_ids: Sequence[int] = (),
        options: Mapping[str, Any] | None = None,
        timeout: float | None = None,
    ) -> Reset:
        """Start episodes; one seed an environment named (all, when none is)."""
        made = None
        if options:
            made = json_format.ParseDict(dict(options), struct_pb2.Struct())
        request = pb.ResetRequest(session_id=self.id, env_ids=env_ids, seeds=seeds, options=made)
        response = rpc.call(self._stub.Reset, request, timeout or self._client.timeout)
        return Reset(decode_map(response.observation, "observation"), tuple(response.episode_ids))

    def step(self, action: np.ndarray, env_ids: Sequence[int] = (), timeout: float | None = None) -> Step:
        """One action in each environment: [n, …A]."""
        request = pb.StepRequest(session_id=self.id, env_ids=env_ids, action=encode(action))
        return _parse(rpc.call(self._stub.Step, request, timeout or self._client.timeout))

    def step_chunk(
        self, actions: np.ndarray, env_ids: Sequence[int] = (), *, every_step: bool = True, timeout: float | None = None
    ) -> Step:
        """A chunk in each environment: [n, C, …A]. ``every_step`` False evaluates the chunk's last step only."""
        request = self._chunk(0, actions, env_ids, every_step, None)
        return _parse(rpc.call(self._stub.StepChunk, request, timeout or self._client.timeout))

    def stream(self) -> StepStream:
        """The fast path: one stream for many chunks."""
        return StepStream(self, self._stub, self._client.timeout)

    def _chunk(
        self, request_id: int, actions: np.ndarray, env_ids: Sequence[int], every_step: bool, timeout: float | None
    ) -> pb.StepChunkRequest:
        kinds = pb.StepChunkRequest
        return pb.StepChunkRequest(
            session_id=self.id,
            env_ids=env_ids,
            actions=encode(actions),
            evaluation=kinds.EVALUATION_EVERY_STEP if every_step else kinds.EVALUATION_CHUNK_END,
            request_id=request_id,
            timeout=None if timeout is None else _duration(timeout),
        )

    def render(self, env_id: int) -> np.ndarray:
        """RGB [H, W, 3] uint8."""
        request = pb.RenderRequest(session_id=self.id, env_id=env_id)
        return decode(rpc.call(self._stub.Render, request, self._client.timeout).image, "image")

    def save_state(self, env_id: int) -> bytes:
        """The exact state of one environment."""
        request = pb.SaveStateRequest(session_id=self.id, env_id=env_id)
        return rpc.call(self._stub.SaveState, request, self._client.timeout).state

    def restore_state(self, env_id: int, state: bytes) -> dict[str, np.ndarray]:
        """Continue from a saved state; returns the observation there, {name: [1, …]}."""
        request = pb.RestoreStateRequest(session_id=self.id, env_id=env_id, state=state)
        return decode_map(rpc.call(self._stub.RestoreState, request, self._client.timeout).observation, "observation")

    def close(self) -> None:
        """Give the environments back."""
        if not self._closed.is_set():
            self._closed.set()
            with contextlib.suppress(LandbridgeError):
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
        self._waiting: queue.SimpleQueue[int] = queue.SimpleQueue()
        self._open = True
        self._answers: Any = stub.StepStream(iter(self._outgoing.get, None))

    def send(self, actions: np.ndarray, env_ids: Sequence[int] = (), *, every_step: bool = True) -> None:
        """Send a chunk [n, C, …A]; its result is a later :meth:`receive`'s."""
        if not self._open:
            raise FailedPrecondition("this stream was closed by an earlier error; open another one")
        request = self._session._chunk(next(self._ids), actions, env_ids, every_step, self._timeout)
        self._waiting.put(request.request_id)
        self._outgoing.put(request)

    def receive(self) -> Step:
        """The result of the oldest chunk not yet answered."""
        try:
            wanted = self._waiting.get_nowait()
        except queue.Empty:
            raise FailedPrecondition("nothing was sent that is still unanswered") from None
        try:
            response = next(self._answers)
        except StopIteration:
            self.close()
            raise Unavailable("the server ended the stream; open another one", retry_after=0.5) from None
        except grpc.RpcError as error:
            self.close()
            raise from_rpc_error(error) from error
        if response.request_id != wanted:
            self.close()
            raise Internal(f"the answer to chunk {response.request_id} came for chunk {wanted}")
        if response.HasField("error"):
            raise from_code(response.error.code, response.error.message)
        return _parse(response)

    def close(self) -> None:
        """End the stream."""
        if self._open:
            self._open = False
            self._outgoing.put(None)
            with contextlib.suppress(Exception):
                self._answers.cancel()


def _parse(response: pb.StepResponse) -> Step:
    return Step(
        observation=decode_map(response.observation, "observation"),
        messages=tuple(response.messages),
        observation_ids=tuple(response.observation_ids),
        **{
            name: decode(getattr(response, name), name)
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


def _duration(seconds: float) -> duration_pb2.Duration:
    made = duration_pb2.Duration()
    made.FromNanoseconds(round(seconds * 1e9))
    return made
