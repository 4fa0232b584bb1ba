"""The scenarios' report: what plain Dask does, what we do, what was asked for; printed after the tests."""

import pytest

_HEADS = ("scenario", "measured", "plain", "ours", "bound")
_NAME = "scenario"


class Report:
    """Where a scenario says what it measured. Rows travel with pytest's own reports, so from any process."""

    def __init__(self, properties):
        self._properties = properties

    def add(self, scenario, measured, *, plain, ours, bound=""):
        """One row. ``plain`` is the baseline: the same thing measured without us, in the same run."""
        self._properties.append((_NAME, [str(word) for word in (scenario, measured, plain, ours, bound)]))


@pytest.fixture
def report(request):
    """Adds rows to the table that is printed at the end of the run."""
    return Report(request.node.user_properties)


def pytest_terminal_summary(terminalreporter):
    reports = [one for some in terminalreporter.stats.values() for one in some]
    called = [one for one in reports if getattr(one, "when", None) == "call"]
    rows = [row for one in called for name, row in one.user_properties if name == _NAME]
    if not rows:
        return
    table = [list(_HEADS), *sorted(rows, key=lambda row: row[0])]
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    terminalreporter.section("scenarios: plain Dask and dask-hpc")
    for line in table:
        terminalreporter.line("  ".join(word.ljust(width) for word, width in zip(line, widths, strict=True)))
