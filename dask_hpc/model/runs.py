"""Whole numbers as runs of neighbours: [0, 1, 2, 7] are [[0, 2], [7, 7]]."""

from collections.abc import Iterable


def runs(numbers: Iterable[int]) -> list[list[int]]:
    """From the smallest to the largest."""
    found: list[list[int]] = []
    for number in sorted(numbers):
        if found and number <= found[-1][1] + 1:
            found[-1][1] = number
        else:
            found.append([number, number])
    return found
