"""Put a policy server together and run it until it is told to stop."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import Any

from landbridge import rpc, telemetry
from landbridge.errors import FailedPrecondition, LandbridgeError
from landbridge.learning.client import LearnerClient
from landbridge.process import announce_ready, watch_parent
from landbridge.v1 import policy_pb2, policy_pb2_grpc
from landbridge.weights import Assembler
from policy_server.backends.protocol import Backend
from policy_server.backends.torch import TorchBackend
from policy_server.batcher import Batcher
from policy_server.options import PolicyServeConfig
from policy_server.service import PolicyServicer
from policy_server.weights import Held, Retention, WeightStore

_SPARE_WORKERS = 16
"""Threads that neither streams nor waiting requests can take: health, GetInfo and pushes always find one."""


@dataclass
class PolicyServer:
    """A server with its parts, for in-process use."""

    server: rpc.Server
    servicer: PolicyServicer
    store: WeightStore[Any]
    batcher: Batcher

    @property
    def address(self) -> str:
        """``host:port``."""
        return self.server.address

    def start(self) -> str:
        """Begin to answer; returns ``host:port``."""
        return self.server.start()

    def stop(self, grace: float = 1.0) -> None:
        """Drain and end."""
        self.servicer.drain()
        self.batcher.resume()
        self.server.stop(grace)
        self.batcher.close()


def build(config: PolicyServeConfig, backend: Backend | None = None) -> PolicyServer:
    """Load the checkpoint, take the newest weights from the learner where there is one, bind; not yet serving.

    ``backend`` replaces the torch backend, and with it the checkpoint.
    """
    made: Backend = backend or TorchBackend(config.checkpoint, config.threads)
    retention = Retention(config.keep, config.pin_seconds, config.max_pinned, config.pin)
    store: WeightStore[Any] = WeightStore(made.build, _first(made, config), made.architecture_hash, retention)
    batcher = Batcher(
        made, store, max_rows=config.max_rows, max_queued=config.max_queued, wait_seconds=config.wait_seconds
    )
    name = made.contract.task or "policy"
    servicer = PolicyServicer(name, made, store, batcher, config.max_rows, config.max_streams)
    descriptor = policy_pb2.DESCRIPTOR.services_by_name["PolicyService"]
    service = rpc.Service(policy_pb2_grpc.add_PolicyServiceServicer_to_server, servicer, descriptor)
    workers = config.max_streams + config.max_queued + _SPARE_WORKERS
    server = rpc.Server([service], host=config.host, port=config.port, max_workers=workers)
    return PolicyServer(server, servicer, store, batcher)


def _first(backend: Backend, config: PolicyServeConfig) -> Held[Any]:
    """The learner's newest version, or, where there is none to be had, the checkpoint's; says which on stderr."""
    if config.learner:
        try:
            held = _from_learner(backend, config.learner, config.learner_timeout)
            print(f"serving version {held.version} from the learner at {config.learner}", file=sys.stderr)
            return held
        except LandbridgeError as error:
            print(f"no weights from the learner at {config.learner}: {error}", file=sys.stderr)
    print(f"serving the checkpoint's version {backend.first_version}", file=sys.stderr)
    return Held(backend.first_version, backend.first_state, backend.build(backend.first_state), backend.first_step)


def _from_learner(backend: Backend, address: str, timeout: float) -> Held[Any]:
    with LearnerClient(address) as client:
        manifest, buckets = client.get_weights(timeout=timeout)
        if manifest.HasField("base_version"):
            raise FailedPrecondition(f"it sent changes to version {manifest.base_version}, full weights are needed")
        assembler = Assembler(manifest, backend.first_state, backend.architecture_hash)
        for bucket in buckets:
            assembler.add(bucket)
    state = assembler.finish()
    return Held(manifest.version, state, backend.build(state), manifest.training_step)


def serve(config: PolicyServeConfig) -> int:
    """Run until SIGINT or SIGTERM."""
    watch_parent()
    telemetry.configure("policy_server")
    stopped = rpc.stop_event()
    made = build(config)
    made.start()
    announce_ready(made.address, version=made.store.current.version)
    stopped.wait()
    made.stop()
    telemetry.shutdown()
    return 0
