"""The scenarios' report: what plain Dask does, what we do, what was asked for; printed after the tests."""

import pytest

_ROWS = pytest.StashKey()


class Report:
    """Where a scenario says what it measured."""

    def __init__(self, rows):
        self._rows = rows

    def add(self, scenario, measured, *, plain, ours, bound=""):
        """One row. ``plain`` is the baseline: the same thing measured without us, in the same run."""
        self._rows.append(
            {"scenario": scenario, "measured": measured, "plain": plain, "ours": ours, "bound": bound}
        )


@pytest.fixture
def report(request):
    """Adds rows to the table that is printed at the end of the run."""
    return Report(request.config.stash[_ROWS])


def pytest_configure(config):
    config.stash[_ROWS] = []


def pytest_terminal_summary(terminalreporter, config):
    rows = config.stash[_ROWS]
    if not rows:
        return
    heads = ("scenario", "measured", "plain", "ours", "bound")
    table = [heads, *(tuple(str(row[head]) for head in heads) for row in rows)]
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    terminalreporter.section("scenarios: plain Dask and dask-hpc")
    for line in table:
        terminalreporter.line("  ".join(word.ljust(width) for word, width in zip(line, widths, strict=True)))
