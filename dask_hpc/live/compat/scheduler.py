"""What we put into a scheduler: remote calls, plugins, pages of the dashboard."""

from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any


def add_handlers(scheduler: Any, handlers: Mapping[str, Callable[..., Any]]) -> None:
    """Answer these remote calls."""
    scheduler.handlers.update(handlers)


def remove_handlers(scheduler: Any, names: Iterable[str]) -> None:
    """Answer them no more."""
    for name in names:
        scheduler.handlers.pop(name, None)


def dashboard_of(scheduler: Any) -> Any:
    """The Bokeh application that serves Dask's own pages; None if the dashboard is off."""
    for application in scheduler.http_application.applications:
        if hasattr(application, "app_paths") and hasattr(application, "applications"):
            return application
    return None


def add_pages(
    scheduler: Any, pages: Mapping[str, Callable[..., None]], unlisted: Collection[str] = ()
) -> Any:
    """Serve these Bokeh documents, by path, beside Dask's own, and list them as Dask's own are listed, but
    for those that are to be unlisted.

    A page is called with scheduler, template variables and document. Answers what ``remove_pages`` needs;
    None if the dashboard is off. Needs Bokeh, which is there if the dashboard is on.
    """
    dask_pages = dashboard_of(scheduler)
    if dask_pages is None:
        return None
    from distributed.dashboard.core import BokehApplication
    from distributed.dashboard.scheduler import template_variables

    variables = template_variables(scheduler)
    ours = BokehApplication(pages, scheduler, prefix=dask_pages.prefix, template_variables=variables)
    scheduler.http_application.add_application(ours)
    ours.initialize(scheduler.loop)
    ours.start()
    for path, context in ours.applications.items():
        # Only looked at for lists of what there is, such as individual-plots.json.
        dask_pages.applications[path] = context
        word = path.strip("/")
        if path in unlisted:
            continue
        if word.startswith("individual-"):
            name = word.removeprefix("individual-").replace("-", " ").title()
            variables["plots"].append({"url": word, "name": name.replace("Hpc", "HPC")})
        else:
            variables["pages"].append(word)
    return ours


def remove_pages(scheduler: Any, ours: Any) -> None:
    """Serve and list them no more."""
    from distributed.dashboard.scheduler import template_variables

    variables, dask_pages = template_variables(scheduler), dashboard_of(scheduler)
    words = {path.strip("/") for path in ours.applications}
    variables["pages"][:] = [page for page in variables["pages"] if page not in words]
    variables["plots"][:] = [plot for plot in variables["plots"] if plot["url"] not in words]
    for path in ours.applications:
        dask_pages.applications.pop(path, None)
    ours.stop()
    scheduler.http_application.applications.remove(ours)


def page_template() -> tuple[Any, Any]:
    """Template and theme of Dask's own pages."""
    from distributed.dashboard.components.scheduler import BOKEH_THEME, env

    return env.get_template("simple.html"), BOKEH_THEME


def is_connected(scheduler: Any, client: str) -> bool:
    """Whether the client of this id is there."""
    return client in scheduler.client_comms
