"""In situ pipelines as a service of a managed cluster: they are told what to decide by, and shown."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from dask_hpc.cluster.scheduler.leaving import Leaving
from dask_hpc.cluster.scheduler.service import Context, Samples, Service
from dask_hpc.in_situ.scheduler import KnownPipelines
from dask_hpc.policy import Policy


class PipelineService(Service):
    """Hears how pipelines go."""

    metrics = {
        "pipeline_iterations": (True, "Iterations that a pipeline has done", "pipeline"),
        "pipeline_iteration_seconds": (False, "Seconds of its last iteration", "pipeline", "is"),
        "pipeline_part_seconds": (
            False,
            "Seconds of each part of its last iteration",
            "pipeline",
            "part",
            "is",
        ),
        "pipeline_nodes": (False, "Nodes that simulate or stage", "pipeline", "part"),
        "pipeline_helper_cores": (False, "Cores of each simulation node that analyse", "pipeline"),
        "pipeline_analyses": (False, "Analyses by where they run", "pipeline", "part"),
        "pipeline_changes": (True, "Partitions that came into force", "pipeline"),
        "pipeline_skipped": (True, "Iterations that an analysis did not look at", "pipeline", "analysis"),
    }
    parts = {"pipelines": "pipelines"}

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self._pipelines = KnownPipelines(context)
        self._written: tuple[Policy | None, str] = (None, "")

    def hears_who_leaves(self) -> bool:
        """Whether a pipeline runs."""
        return self._pipelines.is_any_running()

    def calls(self) -> Mapping[str, Callable[..., Any]]:
        """A pipeline says how it goes."""
        return {"hpc_pipeline": self.told}

    def told(
        self, id: Any = None, client_id: Any = None, status: Any = None, news: Any = ()
    ) -> dict[str, Any]:
        """An in situ pipeline says how it goes: see ``KnownPipelines``. The answer is what it is to
        decide by, the policy in force as YAML, None if nothing is to be changed; and the workers that it is
        to leave."""
        context = self.context
        self._pipelines.told(id, client_id, status, news)
        decides = context.is_on and not context.is_paused
        leaving = sorted(context.get(Leaving).addresses) if context.is_on else []
        return {"policy": self._policy_text() if decides else None, "leaving": leaving}

    def _policy_text(self) -> str:
        """The policy in force; pipelines ask after every iteration, and it seldom changes."""
        policy, text = self._written
        if policy is not self.context.policy:
            policy = self.context.policy
            text = policy.to_yaml()
            self._written = (policy, text)
        return text

    def status(self) -> Mapping[str, Any]:
        """Each pipeline."""
        return {"pipelines": self._pipelines.as_status()}

    def samples(self, status: Mapping[str, Any]) -> dict[str, Samples]:
        """Of each pipeline."""
        return _samples(status["pipelines"])


def _samples(pipelines: Iterable[Mapping[str, Any]]) -> dict[str, Samples]:
    """Of two pipelines of one name, the one that was told of last."""
    found: dict[str, Samples] = {name: {} for name in PipelineService.metrics}
    for one in pipelines:
        name, partition = one["name"], one["partition"]
        found["pipeline_iterations"][name] = one["iteration"]
        found["pipeline_changes"][name] = one["changed"]
        for analysis, skipped in one["skipped"].items():
            found["pipeline_skipped"][name, analysis] = skipped["count"]
        if partition is not None:
            found["pipeline_helper_cores"][name] = partition["helper_cores"]
            found["pipeline_nodes"][name, "simulation"] = partition["nodes"]
            found["pipeline_nodes"][name, "in_transit"] = len(one["nodes"]) - partition["nodes"]
            for part in ("in_situ", "in_transit"):
                found["pipeline_analyses"][name, part] = len(partition[part])
        for last in one["history"][-1:]:
            seconds = {"measured": last["seconds"], "planned": last["expected"]}
            found["pipeline_iteration_seconds"] |= {
                (name, kind): value for kind, value in seconds.items() if value is not None
            }
            found["pipeline_part_seconds"] |= {
                (name, part, kind): value
                for kind in ("measured", "planned")
                for part, value in (last[kind] or {}).items()
            }
    return found


SERVICE = PipelineService
