"""A run, simulated or live, as pictures and as one self-contained HTML page."""

from dask_hpc.view.course import Held, past
from dask_hpc.view.page import Section, course_html, gantt_svg, html_page, table

__all__ = ["Held", "Section", "course_html", "gantt_svg", "html_page", "past", "table"]
