"""What is measured: the full plan and a quick one."""

from __future__ import annotations

from dataclasses import dataclass

from methods import BY_NAME, METHODS

#: Gb/s of a link; None is unshaped loopback.
Link = float | None


def label(link: Link) -> str:
    """A link's name in tables."""
    return "loopback" if link is None else f"{link:g} Gb/s"


@dataclass(frozen=True)
class Pace:
    """How steps are timed: `rounds` turns of each method, each `warmup` steps without and `steps` with the clock."""

    rounds: int
    warmup: int
    steps: int


@dataclass(frozen=True)
class Training:
    """Training runs of all methods: `steps` steps, held-out loss each `every`; seed s runs on `links[s]`. What is
    left of `seeds` runs on unshaped links, since loss does not depend on the rate."""

    steps: int
    every: int
    links: tuple[float, ...]
    seeds: int


@dataclass(frozen=True)
class Plan:
    """All parts, for each number of processes."""

    workers: tuple[int, ...]
    links: tuple[Link, ...]
    pace: dict[str, Pace]
    # By model and number of processes.
    training: dict[tuple[str, int], Training]
    memory_steps: int
    methods: tuple[str, ...] = tuple(method for method in METHODS if method not in BY_NAME)


#: Held-out loss, nats per byte, that counts as reached.
TARGETS = {"heavy": 2.9}

FULL = Plan(
    workers=(2, 4),
    links=(1, 2.5, 10, None),
    pace={"heavy": Pace(3, 1, 4)},
    training={
        ("heavy", 2): Training(120, 10, (1, 10), 5),
        ("heavy", 4): Training(120, 10, (1, 10), 2),
    },
    memory_steps=5,
)

QUICK = Plan(
    workers=(2,),
    links=(1, 10),
    pace={"heavy": Pace(2, 1, 3)},
    training={("heavy", 2): Training(40, 10, (1,), 1)},
    memory_steps=0,
)
