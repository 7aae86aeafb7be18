"""Put a policy server together and run it until it is told to stop."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from landbridge import rpc, telemetry
from landbridge.config import option
from landbridge.errors import LandbridgeError
from landbridge.learning.client import LearnerClient
from landbridge.process import announce_ready, watch_parent
from landbridge.v1 import policy_pb2, policy_pb2_grpc
from policy_server.backends.protocol import Backend
from policy_server.backends.torch import TorchBackend
from policy_server.batcher import Batcher
from policy_server.service import PolicyServicer
from policy_server.weights import Held, WeightStore


@dataclass(frozen=True)
class PolicyServeConfig:
    """Options of ``landbridge policy serve``."""

    checkpoint: Path = option(help="folder with manifest.json and weights.safetensors")
    host: str = option("127.0.0.1", "address to listen on; loopback unless told otherwise")
    port: int = option(50051, "port, 0 for any free one", minimum=0, maximum=65535)
    learner: str = option("", "HOST:PORT of a learner to ask for newer weights at the start")
    keep: int = option(4, "versions kept for rollback, pinned ones on top", minimum=1)
    pin_seconds: float = option(
        3600.0, "a version asked for by number is kept this long after its last use", minimum=0.0
    )
    max_rows: int = option(256, "rows in a batch", minimum=1)
    max_queued: int = option(256, "requests waiting before more are refused", minimum=1)
    wait_seconds: float = option(0.0, "time a batch waits to fill; 0 answers at once", minimum=0.0, maximum=1.0)
    threads: int = option(1, "torch's threads", minimum=1)
    streams: int = option(64, "calls and streams under way at once", minimum=4)


@dataclass
class PolicyServer:
    """A server with its parts, for tests and in-process use."""

    server: rpc.Server
    store: WeightStore[Any]
    batcher: Batcher

    @property
    def address(self) -> str:
        """``host:port``."""
        return self.server.address

    def stop(self, grace: float = 1.0) -> None:
        """Drain and end."""
        self.server.stop(grace)
        self.batcher.close()


def build(config: PolicyServeConfig, backend: Backend | None = None) -> PolicyServer:
    """Load, take newer weights from the learner where there is one, bind; not yet serving."""
    made: Backend = backend or TorchBackend(config.checkpoint, config.threads)
    first: Held[Any] = Held(made.first_version, made.first_state, made.build(made.first_state), made.first_step)
    store: WeightStore[Any] = WeightStore(made.build, first, made.architecture_hash, config.keep, config.pin_seconds)
    if config.learner:
        _take_newest(store, config.learner)
    batcher = Batcher(
        made, store, max_rows=config.max_rows, max_queued=config.max_queued, wait_seconds=config.wait_seconds
    )
    servicer = PolicyServicer(made.contract.task or "policy", made, store, batcher, config.max_rows)
    descriptor = policy_pb2.DESCRIPTOR.services_by_name["PolicyService"]
    service = rpc.Service(policy_pb2_grpc.add_PolicyServiceServicer_to_server, servicer, descriptor)
    server = rpc.Server([service], host=config.host, port=config.port, max_workers=config.streams)
    return PolicyServer(server, store, batcher)


def _take_newest(store: WeightStore[Any], learner: str) -> None:
    """The learner's newest version, or, where there is none to be had, the checkpoint's; says which on stderr."""
    try:
        with LearnerClient(learner) as client:
            manifest, buckets = client.get_weights(timeout=30.0)
            manifest.activate = True
            store.push(manifest, buckets)
        print(f"serving version {store.current.version} from the learner at {learner}", file=sys.stderr)
    except LandbridgeError as error:
        print(f"serving the checkpoint's version {store.current.version}; no newer one: {error}", file=sys.stderr)


def serve(config: PolicyServeConfig) -> int:
    """Run until SIGINT or SIGTERM."""
    watch_parent()
    telemetry.configure("policy_server")
    stopped = rpc.stop_event()
    made = build(config)
    made.server.start()
    announce_ready(made.address, version=made.store.current.version)
    stopped.wait()
    made.stop()
    telemetry.shutdown()
    return 0
