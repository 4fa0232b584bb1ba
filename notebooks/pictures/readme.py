"""Draw the README's picture: the same six jobs under each queue policy, simulated.

Run it from anywhere: ``python notebooks/pictures/readme.py``
"""

from pathlib import Path

from dask_hpc import simulate
from dask_hpc.model.units import show_duration
from dask_hpc.view import gantt_svg

HERE = Path(__file__).parent
POLICIES = ("fcfs", "conservative-backfill", "easy-backfill")
WIDTH, TITLE = 900, 26


def main() -> None:
    """Write readme.svg beside this file."""
    results = [simulate(HERE / "six-jobs.yaml", policy=name, allotments=True) for name in POLICIES]
    end = max(result.metrics["makespan"] for result in results)
    parts, y = [], 8
    for result in results:
        nodes = [str(i) for i in range(result.nodes)]
        picture = gantt_svg(result.held, nodes, end, width=WIDTH)
        height = int(picture.split('viewBox="0 0 ')[1].split('"')[0].split()[1])
        wait = show_duration(result.metrics["mean_wait"])
        parts.append(f'<text x="8" y="{y + 16}" font-weight="bold">{result.policy.name}</text>')
        parts.append(f'<text x="{WIDTH - 28}" y="{y + 16}" text-anchor="end">mean wait {wait}</text>')
        parts.append(
            picture.replace("<svg ", f'<svg x="0" y="{y + TITLE}" height="{height}" ').replace(
                'width="100%"', ""
            )
        )
        y += TITLE + height + 10
    svg = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {y}" color="#222" '
        f'font-family="system-ui, sans-serif" font-size="13"><rect width="{WIDTH}" height="{y}" fill="#fff"/>'
        f"{''.join(parts)}</svg>\n"
    )
    (HERE / "readme.svg").write_text(svg)


if __name__ == "__main__":
    main()
