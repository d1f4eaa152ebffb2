"""Ranks that agree, in every order of events: each may lose the server at any moment, and all must end with the same."""

from __future__ import annotations

import copy
import random
from typing import Any

import pytest
from conftest import needs

needs("torch")

from thc import errors  # noqa: E402
from thc.torch.engine.agreement import Agreement, Route, Wish  # noqa: E402

END = "end"
STEPS = 2


class Rank:
    """One rank, as the hook drives it."""

    def __init__(self, depth: int) -> None:
        self.agreement = Agreement(fallback=True, depth=depth)
        self.cut = False
        """Whether it has lost the server: no more answers come."""
        self.calls: list[Any] = []
        """All calls that it has begun, by what they are for; `answered` of them are over."""
        self.answered = 0
        self.begun = 0
        """Buckets of this step."""
        self.blocked: Any = None
        """The collective of the process group that it waits in, if it does."""
        self.gathers: list[list[int]] = []
        """Rows that it has put into gatherings; `compare_rows` of them are over."""
        self.gathered = 0
        self.todo: list[int] = []
        """Buckets that are still to be repeated."""
        self.where: dict[tuple[int, int], str] = {}
        """By step and bucket, where the mean is from."""
        self.trained = 0
        """Backward passes that are over."""

    def clone(self) -> Rank:
        twin = copy.copy(self)
        twin.agreement = copy.copy(self.agreement)
        for name in ("calls", "gathers", "todo"):
            setattr(twin, name, list(getattr(self, name)))
        twin.where = dict(self.where)
        return twin

    def snapshot(self) -> tuple[Any, ...]:
        state = {name: value for name, value in vars(self).items() if name != "agreement"}
        return (repr(sorted(state.items())), repr(sorted(vars(self.agreement).items(), key=lambda item: item[0])))


class World:
    """Ranks, the server between them, their process group and their board. ``peers`` are the buckets that go through the process
    group anyway; with ``barrier`` each forward pass begins with a collective, as DDP's does."""

    def __init__(self, ranks: int, buckets: int, depth: int, peers: frozenset[int], barrier: bool) -> None:
        self.ranks = [Rank(depth) for _ in range(ranks)]
        self.buckets, self.depth, self.peers, self.barrier = buckets, depth, peers, barrier
        self.asked = False
        self.told: frozenset[int] = frozenset()
        for rank in range(ranks):
            self._forward(rank)

    def clone(self) -> World:
        twin = copy.copy(self)
        twin.ranks = [rank.clone() for rank in self.ranks]
        return twin

    def snapshot(self) -> tuple[Any, ...]:
        return (tuple(rank.snapshot() for rank in self.ranks), self.asked, self.told)

    # What a rank does by itself.

    def _forward(self, at: int) -> None:
        rank = self.ranks[at]
        if rank.trained < STEPS and self.barrier:
            rank.blocked = ("forward", rank.trained)

    def is_over(self, at: int) -> bool:
        return self.ranks[at].trained == STEPS

    def _step_over(self, at: int) -> None:
        rank = self.ranks[at]
        rank.begun = 0
        rank.trained += 1
        self._forward(at)

    def _room(self, at: int) -> int:
        rank = self.ranks[at]
        agreement = rank.agreement
        alone = rank.begun == 0 or agreement.lost or agreement.fallback_active or rank.begun in self.peers
        return 1 if alone else self.depth

    def _begin(self, at: int) -> None:
        rank = self.ranks[at]
        bucket = rank.begun
        rank.begun += 1
        if bucket == 0:
            rank.agreement.begin_step()
        self._take(at, bucket, rank.agreement.route(bucket, bucket in self.peers))

    def _take(self, at: int, bucket: int, route: Route) -> None:
        rank = self.ranks[at]
        step = rank.agreement.steps
        if route is Route.COMPARE:
            rank.blocked = ("compare", step, bucket)
        elif route is Route.PEERS or (route is Route.THC and bucket in self.peers):
            rank.blocked = ("mean", step, bucket)
        elif route is Route.THC:
            rank.calls.append((step, bucket))
        else:
            self._bucket_ended(at, bucket)

    def _bucket_ended(self, at: int, bucket: int) -> None:
        rank = self.ranks[at]
        rank.agreement.complete(bucket)
        if bucket == self.buckets - 1:
            rank.agreement.finish()
            self._grant(at)

    def _grant(self, at: int) -> None:
        """Does what the agreement wishes, until it has to wait or the step is over."""
        rank = self.ranks[at]
        agreement = rank.agreement
        if agreement.wish is Wish.END:
            rank.calls.append((agreement.steps, END))
        elif agreement.wish is Wish.GATHER:
            if rank.gathered == len(rank.gathers):
                rank.gathers.append(agreement.row)
        elif agreement.wish is Wish.REPEAT:
            rank.todo = list(range(agreement.first, self.buckets))
            self._repeat(at)
        else:
            self._step_over(at)

    def _repeat(self, at: int) -> None:
        rank = self.ranks[at]
        if rank.todo:
            assert rank.todo[0] >= rank.agreement.kept, "its gradients are given up"
            rank.blocked = ("mean", rank.agreement.steps, rank.todo[0])
        else:
            rank.agreement.finish_repetition()
            self._grant(at)

    # What may happen next.

    def events(self) -> list[tuple[Any, ...]]:
        found: list[tuple[Any, ...]] = []
        for at, rank in enumerate(self.ranks):
            under_way = len(rank.calls) - rank.answered
            if under_way:
                if rank.cut:
                    found.append(("fail", at))
                elif all(rank.answered < len(other.calls) for other in self.ranks):
                    found.append(("answer", at))
            if not rank.cut and not self.is_over(at):
                found.append(("cut", at))
            if rank.blocked is not None:
                if at == 0 and all(other.blocked == rank.blocked for other in self.ranks):
                    found.append(("collective",))
                if rank.blocked[0] in ("forward", "compare") and self.asked and rank.agreement.steps not in self.told:
                    found.append(("tell", at))
            elif rank.agreement.wish is Wish.GATHER:
                if all(rank.gathered < len(other.gathers) for other in self.ranks):
                    found.append(("gather", at))
                elif not self.asked or rank.agreement.steps + 1 in self.told:
                    found.append(("ask", at))
            elif rank.agreement.wish is Wish.NOTHING and not self.is_over(at):
                if rank.begun < self.buckets and under_way < self._room(at):
                    found.append(("begin", at))
            elif self.is_over(at) and self.asked and rank.agreement.steps not in self.told:
                found.append(("tell", at))
        return found

    def happen(self, event: tuple[Any, ...]) -> None:
        kind, *where = event
        if kind == "collective":
            self._collective()
            return
        (at,) = where
        rank = self.ranks[at]
        if kind == "cut":
            rank.cut = True
        elif kind == "begin":
            self._begin(at)
        elif kind in ("answer", "fail"):
            step, bucket = rank.calls[rank.answered]
            if kind == "answer":
                # What the server adds up is the same call of all ranks.
                assert {other.calls[rank.answered] for other in self.ranks} == {(step, bucket)}
            rank.answered += 1
            if kind == "fail" and bucket != END:
                rank.agreement.lose()
            if bucket == END:
                rank.agreement.end_step(kind == "answer")
                self._grant(at)
            else:
                if kind == "answer" and not rank.agreement.lost:
                    rank.where[step, bucket] = "thc"
                self._bucket_ended(at, bucket)
        elif kind == "ask":
            self.asked = True
            if rank.agreement.steps + 1 in self.told:
                rank.agreement.complete_elsewhere()
                self._grant(at)
        elif kind == "tell":
            self.told |= {rank.agreement.steps}
        elif kind == "gather":
            rows = [other.gathers[rank.gathered] for other in self.ranks]
            rank.gathered += 1
            rank.agreement.compare_rows(rows)
            self._grant(at)

    def _collective(self) -> None:
        what, step, *bucket = self.ranks[0].blocked
        some_lost = any(rank.agreement.lost for rank in self.ranks)
        for at, rank in enumerate(self.ranks):
            rank.blocked = None
            if what == "compare":
                self._take(at, bucket[0], rank.agreement.route_compared(some_lost))
            elif what == "mean":
                rank.where[step, bucket[0]] = "peers"
                if rank.todo:
                    rank.todo.pop(0)
                    self._repeat(at)
                else:
                    self._bucket_ended(at, bucket[0])

    def check_end(self) -> None:
        assert all(self.is_over(at) for at in range(len(self.ranks))), "they wait for each other"
        first = self.ranks[0]
        for rank in self.ranks:
            assert rank.where == first.where and len(rank.where) == STEPS * self.buckets
            assert rank.agreement.fallback_active == first.agreement.fallback_active


def explore(world: World) -> int:
    """Every order of events; how many states there are."""
    seen, open_ = {world.snapshot()}, [world]
    while open_:
        now = open_.pop()
        events = now.events()
        # Losing the server is a choice: a world in which nothing else can happen must be one that has ended.
        if all(kind == "cut" for kind, *_ in events) and not any(rank.cut for rank in now.ranks):
            now.check_end()
        elif not events:
            now.check_end()
        for event in events:
            after = now.clone()
            after.happen(event)
            state = after.snapshot()
            if state not in seen:
                seen.add(state)
                open_.append(after)
    return len(seen)


@pytest.mark.parametrize("barrier", [False, True])
@pytest.mark.parametrize(
    ("ranks", "buckets", "depth", "peers"),
    [(2, 2, 1, ()), (2, 3, 2, ()), (2, 3, 2, (0,)), (2, 3, 3, (1,)), (3, 2, 2, ()), (3, 1, 1, (0,))],
)
def test_every_order_of_events(ranks: int, buckets: int, depth: int, peers: tuple[int, ...], barrier: bool) -> None:
    assert explore(World(ranks, buckets, depth, frozenset(peers), barrier)) > 100


@pytest.mark.parametrize("barrier", [False, True])
@pytest.mark.parametrize(
    ("ranks", "buckets", "depth", "peers"),
    [(3, 4, 2, ()), (3, 6, 3, ()), (4, 3, 3, (1,)), (3, 5, 4, (2, 4))],
)
def test_many_orders_of_more_ranks_and_buckets(
    ranks: int, buckets: int, depth: int, peers: tuple[int, ...], barrier: bool
) -> None:
    endings = set()
    for seed in range(300):
        dice = random.Random(seed)
        world = World(ranks, buckets, depth, frozenset(peers), barrier)
        while events := world.events():
            cuts = [event for event in events if event[0] == "cut"]
            others = [event for event in events if event[0] != "cut"]
            rare = cuts and (not others or dice.random() < 0.02)
            world.happen(dice.choice(cuts if rare else others))
        world.check_end()
        endings.add((world.ranks[0].agreement.fallback_active, tuple(sorted(world.ranks[0].where.values()))))
    assert len(endings) > 3, endings


def test_without_the_margin_a_rank_lacks_what_others_gave_up() -> None:
    """What the tests above would find: buckets let go of as soon as they are complete here."""

    class Hasty(Agreement):
        def complete(self, index: int) -> int:
            super().complete(index)
            self.kept = self.done
            return self.kept

    world = World(2, 2, 2, frozenset(), False)
    for rank in world.ranks:
        rank.agreement.__class__ = Hasty
    with pytest.raises((AssertionError, errors.LostError)):
        explore(world)


def test_all_join_anew_or_none() -> None:
    first, second = Agreement(fallback=True, depth=1), Agreement(fallback=True, depth=1)
    for machine in (first, second):
        machine.fallback_active = True
    rows = [first.join_row(True), second.join_row(False)]
    assert not first.finish_rejoining(rows) and not second.finish_rejoining(rows) and first.fallback_active
    # A row of a step, from before.
    assert first.finish_rejoining([[3, 1], second.join_row(True)]) is None
    rows = [first.join_row(True), second.join_row(True)]
    assert first.finish_rejoining(rows) and second.finish_rejoining(rows)
    assert not first.fallback_active and not second.fallback_active
    second.steps = 5
    with pytest.raises(errors.ConfigError, match="after step 0 on rank 0 and after step 5 on rank 1"):
        first.finish_rejoining([first.join_row(True), second.join_row(True)])


def test_who_was_left_behind_by_a_quorum_is_told() -> None:
    machine = Agreement(fallback=True, depth=2)
    for index in range(3):
        assert machine.route(index, False) is Route.THC
    machine.complete(0)
    machine.lose()
    machine.finish()
    with pytest.raises(errors.LostError, match="quorum"):
        machine.compare_rows([[0, 1], [1, 0]])


def test_without_a_fallback_nothing_is_kept() -> None:
    machine = Agreement(fallback=False, depth=3)
    assert [machine.complete(index) for index in range(3)] == [1, 2, 3]
    machine.finish()
    assert machine.wish is Wish.NOTHING and machine.steps == 1
