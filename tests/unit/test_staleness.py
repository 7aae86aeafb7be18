"""Admission and consumption: the formula, and what holds under any schedule of workers, crashes and clocks."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from learner.staleness import StalenessManager

LEASE = 10.0


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def manager(eta: int = 1, batch: int = 3, concurrent: int = 100, clock: Clock | None = None, **options: int):
    return StalenessManager(eta, batch, concurrent, LEASE, clock=clock or Clock(), **options)


def acquire_all(made: StalenessManager) -> list[str]:
    tickets = []
    while (ticket := made.acquire()) is not None:
        tickets.append(ticket.id)
    return tickets


@pytest.mark.parametrize(("eta", "version"), [(0, 0), (0, 7), (1, 0), (3, 2)])
def test_before_anything_is_accepted_there_is_room_for_eta_plus_one_batches(eta: int, version: int) -> None:
    assert len(acquire_all(manager(eta, batch=3, version=version))) == (eta + 1) * 3


def test_no_more_run_at_once_than_max_concurrent() -> None:
    made = manager(eta=5, concurrent=4)
    tickets = acquire_all(made)
    assert len(tickets) == 4
    assert made.accept(tickets[0])
    assert len(acquire_all(made)) == 1


def test_with_staleness_0_nobody_rolls_out_while_a_batch_is_trained() -> None:
    made = manager(eta=0)
    for ticket in acquire_all(made):
        made.accept(ticket)
    assert made.acquire() is None
    made.trained(3)
    assert len(acquire_all(made)) == 3


def test_a_step_made_of_fewer_trajectories_frees_no_more_places_than_it_consumed() -> None:
    made = manager(eta=0)
    for ticket in acquire_all(made):
        made.accept(ticket)
    made.trained(2)
    assert len(acquire_all(made)) == 2, "one of the three waits in the buffer"


@pytest.mark.parametrize("end", ["release", "lease"])
def test_a_ticket_that_brought_nothing_comes_back_once(end: str) -> None:
    clock = Clock()
    made = manager(eta=0, clock=clock)
    tickets = acquire_all(made)
    if end == "release":
        assert made.release(tickets[0], "crashed") and not made.release(tickets[0], "crashed")
        assert made.returned == {"crashed": 1}
        assert made.capacity() == 1
    else:
        clock.now += LEASE
        assert set(made.expire()) == set(tickets) and made.expire() == []
        assert made.returned == {"lease_ended": 3}
        assert made.capacity() == 3
    assert not made.accept(tickets[0]), "its place may be somebody else's by now"
    assert made.accepted == 0


def test_a_trajectory_that_waits_to_be_stored_keeps_its_place() -> None:
    clock = Clock()
    made = manager(eta=0, clock=clock)
    first, *_ = acquire_all(made)
    clock.now += LEASE - 1
    assert made.renew(first)
    clock.now += LEASE - 1
    made.expire()
    assert made.running == 1 and made.accept(first)
    assert not made.renew(first)


def test_too_old_is_more_than_eta_versions_behind() -> None:
    made = manager(eta=2, version=10)
    assert [made.too_old(version) for version in (7, 8, 10, 11)] == [True, False, False, False]


def test_a_drop_is_counted_once_and_gives_its_place_back() -> None:
    made = manager(eta=0)
    tickets = acquire_all(made)
    for ticket in tickets:
        made.accept(ticket)
    made.drop("too_old")
    assert made.dropped == {"too_old": 1} and made.capacity() == 1


def test_tickets_are_numbered_on_across_a_restart() -> None:
    made = manager(eta=0, version=4, pending=2, first_index=17)
    assert [made.acquire().index for _ in range(1)] == [17]  # type: ignore[union-attr]
    assert made.acquire() is None, "two of the three places are the buffer's"


@pytest.mark.parametrize("wrong", [{"eta": -1}, {"batch": 0}, {"concurrent": 0}])
def test_settings_that_could_never_train_are_refused(wrong: dict[str, int]) -> None:
    with pytest.raises(ValueError, match="at least"):
        manager(**wrong)


@dataclass
class Rollout:
    """One episode under way; ``oldest`` is the version of its first decision."""

    ticket: str
    oldest: int
    alive: bool = True


@dataclass
class World:
    """A learner and its workers, by the rules of intake and consumption."""

    eta: int
    batch: int
    concurrent: int
    clock: Clock = field(default_factory=Clock)
    rollouts: list[Rollout] = field(default_factory=list)
    buffer: list[int] = field(default_factory=list)
    produced: int = 0
    consumed: Counter[int] = field(default_factory=Counter)
    """Staleness of trajectories trained on → how many."""

    def __post_init__(self) -> None:
        self.manager = StalenessManager(self.eta, self.batch, self.concurrent, LEASE, clock=self.clock)

    def start(self) -> bool:
        ticket = self.manager.acquire()
        if ticket is not None:
            self.rollouts.append(Rollout(ticket.id, self.manager.version))
        return ticket is not None

    def finish(self, index: int) -> None:
        rollout = self.rollouts.pop(index)
        if rollout.alive and self.manager.accept(rollout.ticket):
            self.produced += 1
            self.buffer.append(rollout.oldest)

    def train(self, count: int) -> bool:
        """One step on up to ``count`` of a full batch; False where there is no full batch."""
        fresh = [oldest for oldest in self.buffer if not self.manager.too_old(oldest)]
        for _ in range(len(self.buffer) - len(fresh)):
            self.manager.drop("too_old")
        self.buffer = fresh
        if len(fresh) < self.batch:
            return False
        taken = fresh[:count]
        self.buffer = fresh[count:]
        for oldest in taken:
            self.consumed[self.manager.version - oldest] += 1
        self.manager.trained(len(taken))
        return True


class AnySchedule(RuleBasedStateMachine):
    """Workers start, finish, crash and stall; the learner trains now and then; time passes."""

    @rule(eta=st.integers(0, 3), batch=st.integers(1, 4), concurrent=st.integers(1, 12))
    @precondition(lambda self: not hasattr(self, "world"))
    def begin(self, eta: int, batch: int, concurrent: int) -> None:
        self.world = World(eta, batch, concurrent)

    started = precondition(lambda self: hasattr(self, "world"))

    @started
    @rule(count=st.integers(1, 6))
    def start(self, count: int) -> None:
        for _ in range(count):
            self.world.start()

    @started
    @rule(data=st.data())
    def finish(self, data: st.DataObject) -> None:
        if self.world.rollouts:
            self.world.finish(data.draw(st.integers(0, len(self.world.rollouts) - 1)))

    @started
    @rule(data=st.data())
    def crash_in_silence(self, data: st.DataObject) -> None:
        if self.world.rollouts:
            data.draw(st.sampled_from(self.world.rollouts)).alive = False

    @started
    @rule(data=st.data())
    def release(self, data: st.DataObject) -> None:
        if self.world.rollouts:
            rollout = self.world.rollouts.pop(data.draw(st.integers(0, len(self.world.rollouts) - 1)))
            self.world.manager.release(rollout.ticket, "crashed")

    @started
    @rule(part=st.floats(0.1, 1.0))
    def train(self, part: float) -> None:
        self.world.train(max(1, round(part * self.world.batch)))

    @started
    @rule(seconds=st.floats(0.0, 2 * LEASE))
    def time_passes(self, seconds: float) -> None:
        self.world.clock.now += seconds

    @started
    @invariant()
    def nothing_consumed_is_older_than_eta(self) -> None:
        if hasattr(self, "world"):
            assert all(staleness <= self.world.eta for staleness in self.world.consumed)

    @invariant()
    def everything_produced_is_somewhere(self) -> None:
        if hasattr(self, "world"):
            world = self.world
            dropped = sum(world.manager.dropped.values())
            assert world.produced == sum(world.consumed.values()) + len(world.buffer) + dropped

    @invariant()
    def the_bound_holds(self) -> None:
        if hasattr(self, "world"):
            world, made = self.world, self.world.manager
            assert made.running <= world.concurrent
            assert made.accepted + made.running <= (world.eta + made.version + 1) * world.batch
            assert made.accepted - made.version * world.batch == len(world.buffer), "no place has leaked"

    def teardown(self) -> None:
        """From wherever the schedule left it, a healthy worker and a learner get on."""
        if not hasattr(self, "world"):
            return
        world = self.world
        for rollout in world.rollouts:
            rollout.alive = False
        world.clock.now += LEASE
        for _ in range(3):
            version = world.manager.version
            for _ in range(4 * world.batch * (world.eta + 1)):
                if world.train(world.batch):
                    break
                if world.start():
                    world.finish(len(world.rollouts) - 1)
            assert world.manager.version == version + 1, "deadlock"


TestAnySchedule = AnySchedule.TestCase
TestAnySchedule.settings = settings(max_examples=150, stateful_step_count=40, deadline=None)


@given(eta=st.integers(0, 2), batch=st.integers(1, 3), steps=st.integers(1, 6))
@settings(deadline=None)
def test_episodes_as_long_as_a_version_are_all_trained_on(eta: int, batch: int, steps: int) -> None:
    """The bound alone keeps samples fresh while no episode outlives its version: nothing is dropped."""
    world = World(eta, batch, 1000)
    for _ in range(steps):
        while world.start():
            world.finish(0)
        assert world.train(batch)
    assert not world.manager.dropped
    assert max(world.consumed) == min(eta, steps - 1)
