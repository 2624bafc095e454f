"""The events of one run of an application: START, RUNNING, and COMPLETE or FAIL at its end.

An application is a job, each start of it is a run. Every event has all facets and datasets known at its time, so a lost
one leaves no gap that the next does not close.
"""

from __future__ import annotations

import traceback
from datetime import UTC, datetime
from typing import Final

from openlineage.client.event_v2 import Job, Run, RunEvent, RunState
from openlineage.client.facet_v2 import JobFacet, RunFacet, error_message_run, job_type_job, processing_engine_run
from openlineage.client.uuid import generate_new_uuid

from penstock import __version__
from penstock.config import StreamsConfig
from penstock.tools.openlineage.datasets import PRODUCER, Datasets
from penstock_broker.common.clock import Clock

_MOST_CHARACTERS: Final = 10_000
"""The most characters of an error message or a stack trace, so that no event is too large for its receiver."""


class RunEvents:
    """Creates the events of one run.

    Args:
        config: application.id and penstock.openlineage.namespace name the job.
        clock: gives the times of the events.
    """

    def __init__(self, config: StreamsConfig, clock: Clock) -> None:
        self._namespace: str = config["penstock.openlineage.namespace"]
        self._name: str = config.required("application.id")
        self._clock = clock
        self.run_id = str(generate_new_uuid())

    def event(self, state: RunState, datasets: Datasets, error: BaseException | None = None) -> RunEvent:
        """Return the event of a change to `state`, at the current time.

        Args:
            state: START, RUNNING, COMPLETE or FAIL.
            datasets: of the application at this time.
            error: the error that ended the application; None without one.
        """
        at = datetime.fromtimestamp(self._clock.milliseconds() / 1000, UTC)
        run_facets: dict[str, RunFacet] = {
            "processing_engine": processing_engine_run.ProcessingEngineRunFacet(
                __version__, "Penstock", __version__, producer=PRODUCER
            )
        }
        if error is not None:
            run_facets["errorMessage"] = _facet_of(error)
        job_type = job_type_job.JobTypeJobFacet("STREAMING", "PENSTOCK", "APPLICATION", producer=PRODUCER)
        job_facets: dict[str, JobFacet] = {"jobType": job_type}
        return RunEvent(
            eventTime=at.isoformat(timespec="milliseconds"),
            producer=PRODUCER,
            eventType=state,
            run=Run(self.run_id, run_facets),
            job=Job(self._namespace, self._name, job_facets),
            inputs=datasets.inputs(),
            outputs=datasets.outputs(),
        )


def _facet_of(error: BaseException) -> error_message_run.ErrorMessageRunFacet:
    message = "".join(traceback.format_exception_only(error)).strip()
    trace = "".join(traceback.format_exception(error))
    return error_message_run.ErrorMessageRunFacet(
        message[:_MOST_CHARACTERS], "python", trace[-_MOST_CHARACTERS:], producer=PRODUCER
    )
