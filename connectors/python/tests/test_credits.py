"""A slow trainer asks for two batches, a fast one for two frames."""

from __future__ import annotations

from headrace._credits import MAX_BATCHES, Credits


def window(size: int, seconds: float) -> int:
    credits = Credits()
    for _ in range(8):
        credits.received(credits.per_frame, size * credits.per_frame)
        credits.used(credits.per_frame, seconds * credits.per_frame)
    return credits.window


def test_before_anything_is_known_two_batches() -> None:
    assert Credits().window == 2


def test_slow_steps_keep_two_batches_however_small() -> None:
    assert window(100, 1.0) == window(100, 0.02) == window(100_000_000, 0.5) == 2


def test_fast_steps_ask_for_two_frames_of_two_mebibytes() -> None:
    assert window(256 << 10, 1e-4) == 16
    assert window(64 << 10, 1e-4) == 64


def test_batches_larger_than_a_frame_go_two_at_a_time() -> None:
    assert window(10 << 20, 1e-4) == 2


def test_tiny_batches_are_bounded() -> None:
    assert window(10, 1e-9) == 2 * MAX_BATCHES
