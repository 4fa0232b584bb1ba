"""Makes README.md and figures/ here from the notebooks that a full run left in a folder:

dask-hpc bench all --scale full --out FOLDER
python notebooks/benchmarks/overview.py FOLDER

One that has not run there keeps what the page says of it; of one that never ran in full the page says that.
"""

import base64
import hashlib
import json
import re
import sys
from pathlib import Path

from dask_hpc.cli.bench import benchmarks, last_table, title
from dask_hpc.model.units import show_duration

HERE = Path(__file__).parent
HEAD = """# What our benchmarks measured

Each section is what one notebook of this folder printed and drew last when it ran at full scale. All of it
can be had again:

```
dask-hpc bench                                  # what there is
dask-hpc bench NAME                             # one, in seconds, to see that it works
dask-hpc bench all --scale full --out FOLDER    # these figures
python notebooks/benchmarks/overview.py FOLDER  # this page, which nobody edits
```

*Ours* is what dask-hpc takes or reaches, *baseline* what it is compared with, in the same run and by turns;
*wanted* is the bound that was set before anything was measured, *met* says whether this run kept it. Where
a bound or its baseline moved since, the notebook says so, and why. Where nothing is wanted the figure is
there to explain others. How each is measured, and under which assumptions, is said in its notebook. Ratios
travel from machine to machine, seconds do not: bounds in seconds were set on one that simulated 119,000
jobs/s where the first row of the simulator's table has what this one does.
"""
MOST_BYTES = 60_000  # of a picture


def main(folder: Path) -> None:
    """Write the page and its pictures, or say in one line what is missing."""
    sections, pictures = [], {}
    kept = (
        sections_of_the_page() if any((folder / f"{name}.ipynb").is_file() for name in benchmarks()) else {}
    )
    for name, path in benchmarks().items():
        if name in kept and not (folder / f"{name}.ipynb").is_file():
            text, picture = kept[name]
            sections.append(text)
            pictures[picture.name] = picture.read_bytes()
            continue
        if kept and not (folder / f"{name}.ipynb").is_file():
            sections.append(not_yet(name, path))
            continue
        notebook, ran = full_run(folder / f"{name}.ipynb")
        table, (suffix, picture) = last_table(notebook["cells"]), last_picture(notebook["cells"])
        if not table or len(picture) > MOST_BYTES:
            sys.exit(
                f"{name}: {len(picture):,} bytes of picture, {len(table)} tables; wanted: a small one, one"
            )
        pictures[f"{name}.{suffix}"] = picture
        sections.append(section(name, notebook, ran, table, f"figures/{name}.{suffix}"))
    page = "\n".join([HEAD, *sections])
    figures = HERE / "figures"
    figures.mkdir(exist_ok=True)
    for old in figures.iterdir():
        old.unlink()
    for name, picture in pictures.items():
        (figures / name).write_bytes(picture)
    (HERE / "README.md").write_text(f"{page}\n{seal(page, pictures)}\n", encoding="utf-8")


def sections_of_the_page() -> dict[str, tuple[str, Path]]:
    """What the page says of each benchmark now, and where the picture is."""
    if not (HERE / "README.md").is_file():
        return {}
    page, _, mark = (HERE / "README.md").read_text(encoding="utf-8").rstrip("\n").rpartition("\n")
    if mark != seal(page, {path.name: path.read_bytes() for path in (HERE / "figures").iterdir()}):
        sys.exit(f"{HERE / 'README.md'} was edited; wanted: the page as this script made it")
    found = {}
    for text in re.split(r"^(?=## )", page, flags=re.MULTILINE)[1:]:
        if (named := re.search(r"\]\(figures/(([^)]+)\.\w+)\)", text)) is None:
            continue  # not yet run
        picture, name = named.groups()
        found[name] = text.rstrip("\n") + "\n", HERE / "figures" / picture
    return found


def full_run(path: Path) -> tuple[dict, dict]:
    """A run notebook, and how it was run."""
    if not path.is_file():
        sys.exit(f"{path} is missing; wanted: what `dask-hpc bench all --scale full` leaves")
    notebook = json.loads(path.read_text(encoding="utf-8"))
    ran = notebook["metadata"].get("dask_hpc", {}).get("ran", {})
    if ran.get("scale") != "full":
        sys.exit(f"{path} is no full run; wanted: what `dask-hpc bench {path.stem} --scale full` leaves")
    return notebook, ran


def last_picture(cells: list[dict]) -> tuple[str, bytes]:
    """The last picture as (suffix, bytes)."""
    for cell in reversed(cells):
        for out in reversed(cell.get("outputs", ())):
            data = out.get("data", {})
            if "image/svg+xml" in data:
                lines = "".join(data["image/svg+xml"]).splitlines()
                return "svg", "\n".join([line.rstrip() for line in lines] + [""]).encode()
            if "image/png" in data:
                return "png", base64.b64decode("".join(data["image/png"]))
    sys.exit("a notebook without a picture")


def section(name: str, notebook: dict, ran: dict, table: dict[str, str], picture: str) -> str:
    """Title, table, picture, and how they were obtained."""
    heading = "".join(notebook["cells"][0]["source"]).partition("\n")[0].lstrip("# ")
    date = notebook["metadata"]["papermill"]["start_time"][:10]
    versions = ", ".join(f"{package} {found}" for package, found in ran["versions"].items())
    rows = table.get("text/markdown") or f"```\n{table['text/plain'].rstrip()}\n```"
    return "\n\n".join(
        [
            f"## {heading}",
            *explanation(notebook["cells"]),
            rows,
            f"![{name}: what the table says, drawn]({picture})",
            f"[{name}.ipynb]({name}.ipynb), `dask-hpc bench {name} --scale full`, {date}, took "
            f"{show_duration(round(ran['seconds']))} on {ran['cores']} cores ({ran['processor']}); "
            f"{versions}.\n",
        ]
    )


def not_yet(name: str, path: Path) -> str:
    """What is said of a benchmark that never ran at full scale."""
    how = f"[{name}.ipynb]({name}.ipynb), `dask-hpc bench {name} --scale full`"
    return f"## {title(path)}\n\n{how}, has not run at full scale yet.\n"


def explanation(cells: list[dict]) -> list[str]:
    """What the notebook says between its last heading and its table."""
    texts = ["".join(cell["source"]) for cell in cells[1:] if cell["cell_type"] == "markdown"]
    last = texts[-1] if texts else ""
    return [last.partition("\n")[2].strip()] if last.startswith("## All of it\n") else []


def seal(page: str, pictures: dict[str, bytes]) -> str:
    """A last line that no longer fits once somebody edits the page or a picture by hand."""
    whole = page.encode() + b"".join(pictures[name] for name in sorted(pictures))
    return f"<!-- made by overview.py, {hashlib.sha256(whole).hexdigest()[:16]} -->"


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    main(Path(sys.argv[1]))
