"""A training run in which ranks are killed and added, and the aggregator falls over, on links that lose packets; and the same undisturbed.

Each rank is a process on a host of its own (a network namespace), and so are the aggregator and its spare. Every `--every` seconds a rank is
killed (SIGKILL) or another one added; the aggregator is killed `--falls` times, and started again `--away` seconds later.
Every mean and every replica, of each step on each rank that did it, must have the same bits.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import random
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

from crew import end, find_server
from links import Network, NotPossible, why_not

HERE = Path(__file__).resolve().parent
COOKIE = "0x5eedc0de"
PORT = 9000
AHEAD = 5.0
"""Seconds of steps after which all ranks end, when they are told which step is the last."""
PATIENCE = 90.0
"""Seconds that may pass without a step anywhere, or until a change of members is over."""
LEAST = 3
"""Changes of members that there are, however long they take."""


class Trouble(Exception):
    """What must not be; says what."""


class Rank:
    """A process, and what it has told."""

    def __init__(self, seat: int, command: list[str], log: Path) -> None:
        self.seat, self.told, self.killed = seat, [], False
        self.lines: list[dict[str, Any]] = []
        self._log = log.open("a")
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._log, text=True)
        threading.Thread(target=self._hear, daemon=True).start()

    def _hear(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            # The last line of a killed process may be half of one.
            if line.endswith("}\n"):
                self.lines.append(json.loads(line))

    def steps(self) -> list[dict[str, Any]]:
        return [line for line in list(self.lines) if "step" in line]

    def current_step(self) -> int:
        """The step that it has come to, 0 if none."""
        return next((line["step"] for line in reversed(list(self.lines)) if "step" in line), 0)

    def kill(self) -> None:
        self.killed = True
        self.process.kill()
        self.process.wait()

    def tell(self, last: int) -> None:
        assert self.process.stdin is not None
        try:
            self.process.stdin.write(f"{last}\n")
            self.process.stdin.flush()
        except OSError:
            pass  # it has ended

    def close(self) -> None:
        if self.process.poll() is None:
            self.kill()
        self._log.close()


class Run:
    """Hosts, aggregators, ranks, and what happens to them."""

    def __init__(self, program: Path, network: Network, arguments: argparse.Namespace, folder: Path, steps: int) -> None:
        self.program, self.network, self.arguments, self.folder, self.steps = program, network, arguments, folder, steps
        self.ranks: list[Rank] = []
        self.servers: list[subprocess.Popen[Any] | None] = [None, None]
        self.events: list[dict[str, Any]] = []
        self.started = time.monotonic()
        folder.mkdir(parents=True, exist_ok=True)

    @property
    def now(self) -> float:
        return time.monotonic() - self.started

    def serve(self, number: int) -> None:
        """Starts the aggregator, 0, or its spare, 1."""
        role, address = ("ps", self.network.server) if number == 0 else (f"w{self.arguments.ranks}", self.network.worker(self.arguments.ranks))
        flags = ["--share", f"{number}/2", "--shares", f"{self.network.server}:{PORT}", "--spares",
                 f"{self.network.worker(self.arguments.ranks)}:{PORT}", "--listen", f"{address}:{PORT}", "--job", "1", "--cookie", COOKIE,
                 "--min-workers", "1", "--max-workers", str(self.arguments.ranks), "--gone-after", "1500ms"]
        with (self.folder / f"server-{number}.log").open("a") as log:
            command = [*self.network.prefix(role), str(self.program), *flags]
            self.servers[number] = subprocess.Popen(command, stdout=log, stderr=log)

    def start(self, seat: int) -> None:
        settings = {"ps": f"{self.network.server}:{PORT}", "cookie": COOKIE, "seat": seat, "seed": self.arguments.seed,
                    "steps": self.steps, "check": self.arguments.check, "pace": self.arguments.pace}
        command = [*self.network.prefix(f"w{seat}"), sys.executable, str(HERE / "disturbed_rank.py"), json.dumps(settings)]
        self.ranks.append(Rank(seat, command, self.folder / f"rank-{seat}.log"))

    @property
    def changes(self) -> int:
        """Changes of members that ranks have seen."""
        return len({line["epoch"] for rank in self.ranks for line in list(rank.lines) if "epoch" in line})

    @property
    def alive(self) -> list[Rank]:
        return [rank for rank in self.ranks if rank.process.poll() is None]

    @property
    def event_kinds(self) -> set[str]:
        """What has, of all kinds of events."""
        return {event["what"] for event in self.events}

    def note(self, what: str, **more: object) -> None:
        self.events.append({"at": self.now, "step": max((rank.current_step() for rank in self.ranks), default=0), "what": what, **more})

    def look(self) -> None:
        """Fails if a rank has ended that nobody has killed, or nothing goes on."""
        for rank in self.ranks:
            code = rank.process.poll()
            if not rank.killed and code not in (None, 0):
                words = [line for line in (self.folder / f"rank-{rank.seat}.log").read_text().splitlines() if line.strip()]
                raise Trouble(f"rank {rank.seat} has ended: {words[-1] if words else code}")
        last = max((line["at"] for rank in self.ranks for line in rank.steps()[-1:]), default=self.started)
        if time.monotonic() - max(last, self.started) > PATIENCE:
            raise Trouble(f"no step for {PATIENCE:.0f} s")

    def progress(self, text: str) -> None:
        front = max(self.ranks, key=Rank.current_step)
        losses = [line for rank in self.ranks for line in rank.steps() if "loss" in line]
        loss = f", loss {max(losses, key=lambda line: line['step'])['loss']:.3f}" if losses else ""
        members = next((line["members"] for line in reversed(list(front.lines)) if "members" in line), 0)
        print(f"{self.now:6.0f} s  {text}: step {front.current_step()}, {members} ranks{loss}", flush=True)

    def close(self) -> None:
        for rank in self.ranks:
            rank.close()
        for server in self.servers:
            if server is not None:
                end(server)

    def finish(self, seconds: float) -> None:
        """Until all ranks that are left have ended by themselves."""
        until = time.monotonic() + seconds
        while self.alive:
            self.look()
            if time.monotonic() > until:
                raise Trouble(f"{len(self.alive)} ranks have not ended")
            time.sleep(0.2)
        self.look()


def disturb(run: Run) -> None:
    """Kills and adds for so many minutes."""
    arguments, chance = run.arguments, random.Random(run.arguments.seed)
    length = 60 * arguments.minutes
    run.serve(1)
    run.serve(0)
    for seat in range(min(3, arguments.ranks)):
        run.start(seat)
    while min(rank.current_step() for rank in run.ranks) < 5:
        run.look()
        time.sleep(0.2)
    run.started = time.monotonic()
    # Between two events of ranks: a change of members waits for the first server (docs/reliability.md).
    falls = [(1 + round(length * part / (arguments.falls + 1) / arguments.every)) * arguments.every - arguments.every / 2
             for part in range(1, arguments.falls + 1)]
    due, told, back = arguments.every, 0.0, None
    happened, since = 0, 0.0
    # A machine that is slow needs longer for as much.
    while run.now < length or run.changes < LEAST or not {"a rank is killed", "a rank is added"} <= run.event_kinds:
        run.look()
        if run.changes < happened and run.now - since > PATIENCE:
            raise Trouble(f"no change of members for {PATIENCE:.0f} s after a rank was killed or added")
        if falls and run.now >= falls[0]:
            falls.pop(0)
            server = run.servers[0]
            assert server is not None
            server.kill()
            server.wait()
            run.note("the aggregator is killed")
            run.progress("the aggregator is killed")
            back = run.now + arguments.away
        if back is not None and run.now >= back:
            run.serve(0)
            run.note("the aggregator is started")
            run.progress("the aggregator is started again")
            back = None
        # Who is killed or added while the last change is not over may be part of that one.
        if run.now >= due and run.changes >= happened:
            happened, since = run.changes + 1, run.now
            due = max(due, run.now - arguments.every / 2) + arguments.every
            alive = run.alive
            free = sorted(set(range(arguments.ranks)) - {rank.seat for rank in alive})
            kills = chance.random() < 0.5
            if run.now > length:
                kills = "a rank is killed" not in run.event_kinds
            if not free or (len(alive) > 2 and kills):
                victim = chance.choice(alive)
                victim.kill()
                run.note("a rank is killed", seat=victim.seat)
                run.progress(f"rank {victim.seat} is killed")
            else:
                seat = chance.choice(free)
                run.start(seat)
                run.note("a rank is added", seat=seat)
                run.progress(f"rank {seat} is added")
        if run.now >= told + 10:
            told = run.now
            run.progress("so far")
        time.sleep(0.1)
    last = max(rank.current_step() for rank in run.ranks) + max(20, round(AHEAD / max(arguments.pace, 0.02)))
    for rank in run.alive:
        if rank.current_step() == 0:
            # It would come when the others have ended, and find nobody who knows anything.
            rank.kill()
        rank.tell(last)
    run.finish(PATIENCE)
    run.progress("ended")


def run_undisturbed(run: Run) -> None:
    """As many steps with the ranks that the disturbed run began with."""
    run.serve(1)
    run.serve(0)
    for seat in range(min(3, run.arguments.ranks)):
        run.start(seat)
    told = 0.0
    while run.alive:
        run.look()
        if run.now >= told + 10:
            told = run.now
            run.progress("undisturbed")
        time.sleep(0.2)
    run.look()


def judge(run: Run) -> dict[str, Any]:
    """What the ranks told, compared."""
    means: dict[int, set[int]] = {}
    replicas: dict[int, set[int]] = {}
    by: dict[int, int] = {}
    for rank in run.ranks:
        # A mean that only a rank had that is killed is nobody's: the others make one without it (P43).
        for line in rank.steps()[: -1 if rank.killed else None]:
            means.setdefault(line["step"], set()).add(line["mean"])
            replicas.setdefault(line["step"], set()).add(line["replica"])
            by[line["step"]] = by.get(line["step"], 0) + 1
    last = max(means, default=0)
    lines = [line for rank in run.ranks for line in list(rank.lines)]
    finished = [line for line in lines if "finished" in line]
    losses = sorted({line["step"]: line["loss"] for rank in run.ranks for line in rank.steps() if "loss" in line}.items())
    ends = sorted({line["ended"] for line in lines if "ended" in line})
    times = sorted(line["at"] for line in lines if "step" in line)
    return {
        "steps": last,
        "compared": sum(count > 1 for count in by.values()),
        "differ": sorted(step for step in means if len(means[step]) > 1 or len(replicas[step]) > 1),
        "missing": sorted(set(range(1, last + 1)) - set(means)),
        "checks": sum("compared" in line for line in lines),
        "caught_up": sum("caught_up" in line for line in lines),
        "sessions": run.changes,
        "ended": sum("ended" in line for line in lines),
        "why_ended": ends,
        "longest_pause": max((b - a for a, b in zip(times, times[1:])), default=0.0),
        "packets": sum(line["packets"] for line in finished),
        "retransmissions": sum(line["retransmissions"] for line in finished),
        "ranks_at_the_end": len(finished),
        "loss": losses,
        "members": _members(run),
        "events": run.events,
        "seconds": run.now,
    }


def _members(run: Run) -> list[tuple[int, int]]:
    """Where the number of ranks changed: step and number."""
    found: dict[int, int] = {line["step"]: line["members"] for rank in run.ranks for line in rank.steps()}
    changes: list[tuple[int, int]] = []
    for step, members in sorted(found.items()):
        if not changes or changes[-1][1] != members:
            changes.append((step, members))
    return changes


def main(words: list[str]) -> int:
    from arguments import number

    parser = argparse.ArgumentParser(prog="bench disturbed", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=number(float, 0, above=True), default=10, help="how long ranks are killed and added (%(default)s)")
    parser.add_argument("--every", type=number(float, 1), default=20, help="seconds between two such events (%(default)s)")
    parser.add_argument("--falls", type=number(int, 0), default=2, help="how many times the aggregator is killed (%(default)s)")
    parser.add_argument("--away", type=number(float, 0), default=5, help="seconds until it is started again (%(default)s)")
    parser.add_argument("--ranks", type=number(int, 2), default=4, help="most ranks at a time (%(default)s)")
    parser.add_argument("--loss", type=number(float, 0), default=1, help="percent of packets lost, each way (%(default)s)")
    parser.add_argument("--check", type=number(int, 1), default=10, help="steps between two comparisons by the ranks themselves (%(default)s)")
    parser.add_argument("--pace", type=number(float, 0), default=0.15, help="fewest seconds that a step takes (%(default)s)")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--out", type=Path, default=Path("target/bench-disturbed"), help="folder for results (%(default)s)")
    parser.add_argument("--report", type=Path, metavar="JSON", help="only draw and print results measured before")
    arguments = parser.parse_args(words)
    if arguments.report:
        results = json.loads(arguments.report.read_text())
    else:
        program, why = find_server(), why_not()
        if why or program is None:
            print(f"not run: {why or 'thc-ps not found (cargo build --release -p thc-ps, or THC_PS_PROGRAM=PATH)'}")
            return 0
        try:
            results = measure(program, arguments)
        except NotPossible as why_none:
            print(f"not run: links that lose packets: {why_none}")
            return 0
    arguments.out.mkdir(parents=True, exist_ok=True)
    (arguments.out / "results.json").write_text(json.dumps(results) + "\n")
    print(summary(results))
    if importlib.util.find_spec("matplotlib") is None:
        print("no picture: Python has no matplotlib (pip install matplotlib)")
    else:
        import plot_disturbed

        plot_disturbed.draw(results, arguments.out / "disturbed.svg")
        print(f"results: {arguments.out}/results.json, disturbed.svg")
    return 0 if right(results) else 1


def measure(program: Path, arguments: argparse.Namespace) -> dict[str, Any]:
    """Both runs."""
    results: dict[str, Any] = {"arguments": {key: str(value) for key, value in vars(arguments).items()}, "trouble": None}
    from machine import machine

    results["machine"] = machine()
    with Network(arguments.ranks + 1) as network:
        if arguments.loss:
            network.lose(arguments.loss / 100)
        run = Run(program, network, arguments, arguments.out.resolve() / "logs", 1 << 40)
        try:
            disturb(run)
        except (Trouble, KeyboardInterrupt) as trouble:
            results["trouble"] = str(trouble) or "interrupted"
            print(f"trouble: {results['trouble']}", flush=True)
        finally:
            run.close()
        results["disturbed"] = judge(run)
    if results["trouble"] is None:
        arguments.pace = 0.0
        with Network(arguments.ranks + 1) as network:
            run = Run(program, network, arguments, arguments.out.resolve() / "logs-undisturbed", results["disturbed"]["steps"])
            try:
                run_undisturbed(run)
            except (Trouble, KeyboardInterrupt) as trouble:
                results["trouble"] = f"undisturbed: {trouble or 'interrupted'}"
            finally:
                run.close()
            results["undisturbed"] = judge(run)
    return results


def right(results: dict[str, Any]) -> bool:
    runs = [results[name] for name in ("disturbed", "undisturbed") if name in results]
    return results["trouble"] is None and not any(run["differ"] or run["missing"] for run in runs)


def summary(results: dict[str, Any]) -> str:
    """What came of it, for people."""
    lines = []
    for name in ("disturbed", "undisturbed"):
        run = results.get(name)
        if run is None:
            continue
        count = {what: sum(event["what"] == what for event in run["events"]) for what in
                 ("a rank is killed", "a rank is added", "the aggregator is killed")}
        last = run["loss"][-1][1] if run["loss"] else float("nan")
        lines += [
            f"{name}: {run['steps']} steps in {run['seconds']:.0f} s, held-out loss {last:.4f}; {count['a rank is killed']} ranks killed, "
            f"{count['a rank is added']} added, the aggregator killed {count['the aggregator is killed']} times; {run['sessions']} changes of members",
            f"    bits compared: {run['compared']} steps on two ranks or more, {len(run['differ'])} differ; {run['checks']} times by the ranks themselves; "
            f"{len(run['missing'])} means lost; sessions ended by an error on {run['ended']} ranks; longest pause {run['longest_pause']:.1f} s",
        ]
    if results["trouble"]:
        lines.append(f"trouble: {results['trouble']}")
    return "\n".join(lines)
