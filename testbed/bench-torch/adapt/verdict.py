"""Whether a published gain is reached. A gain counts only where accuracy is recovered: L-GreCo (section 5.1) takes MLPerf's limit, 1 %
of that of uncompressed training, and its uniform reference keeps to it."""

from __future__ import annotations

LIMIT = 0.01
"""How much worse than without compression a score may be, as a share of it."""
AIMS = {"QSGD": 1.10, "TopK": 2.6, "PowerSGD": 1.44}
"""L-GreCo over uniform, by family: the least of the paper's Tables 2 and 3."""
BETTER = {"accuracy": 1, "perplexity": -1}
"""Whether more of a score is better."""


def score_loss(score: str, found: float, dense: float) -> float:
    """By what share a score is worse than without compression; below zero if it is better."""
    return BETTER[score] * (dense - found) / dense


def recovers(share: float) -> bool:
    """Whether a score is as good as without compression."""
    return share <= LIMIT


def percent(share: float) -> str:
    """As a table has it."""
    text = f"{100 * share:+.1f} %"
    return text if recovers(share) else f"**{text}**"


def verdict(gain: float, aim: float, uniform: float, chosen: float) -> str:
    """What is said of a gain over uniform, with the shares by which the scores of both are off."""
    why = []
    if gain < aim:
        why.append("too few bytes saved")
    if not recovers(uniform):
        why.append("uniform is off")
    if not recovers(chosen):
        why.append("L-GreCo is off")
    return f"aim {aim:g}: {'**not reached**: ' + ', '.join(why) if why else 'reached'}"
