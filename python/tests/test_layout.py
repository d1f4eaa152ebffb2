"""How a bucket's coordinates are divided into blocks."""

from __future__ import annotations

from conftest import needs

needs("torch")

from thc.torch.compression.layout import Layout, Segment  # noqa: E402


def layout(*lengths: int, aside: int | None = None) -> Layout:
    starts = [sum(lengths[:at]) for at in range(len(lengths))]
    return Layout("test", [Segment(f"p{at}", start, length, at != aside) for at, (start, length) in enumerate(zip(starts, lengths))])


def test_each_parameter_has_blocks_of_its_own() -> None:
    assert layout(1280, 1024, 768, 1, 64).spans(3) == [(1280, 3), (1024, 3), (768, 3), (1, 3), (64, 3)]
    # An empty one has none.
    assert layout(1280, 0, 64).spans("raw") == [(1280, "raw"), (64, "raw")]


def test_tiny_neighbours_share_a_block() -> None:
    # 300,000 coordinates: from 64 on each has its own, whatever its share.
    assert layout(60, 20, 299_000, 63, 63, 64, 7).spans(1) == [(80, 1), (299_000, 1), (126, 1), (64, 1), (7, 1)]
    lengths = [1] * 5000 + [63] * 2000
    spans = layout(*lengths).spans(1)
    assert sum(length for length, _ in spans) == sum(lengths) and len(spans) < 10


def test_what_is_not_compressed_has_a_raw_span() -> None:
    assert layout(3000, 500, 2000, aside=1).spans(1) == [(3000, 1), (500, "raw"), (2000, 1)]
    both = Layout("test", [Segment("a", 0, 300, False), Segment("b", 300, 20, False), Segment("c", 320, 30, True)])
    assert both.spans(1) == [(320, "raw"), (30, 1)]
    assert both.feedback_places() == [("c", slice(320, 350))]
