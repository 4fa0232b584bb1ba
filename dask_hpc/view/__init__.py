"""A run, simulated or live, as pictures and as one self-contained HTML page."""

from dask_hpc.view.page import Held, Section, gantt_svg, html_page, table

__all__ = ["Held", "Section", "gantt_svg", "html_page", "table"]
