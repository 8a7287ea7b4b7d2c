"""Flink's REST interface: what runs, how checkpoints go, what failed, and stopping with a savepoint."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any

import httpx

from schemas.errors import StackFault, TransientFault


@dataclass(frozen=True)
class JobHealth:
    """The state of one job at one moment.

    Attributes:
        state: as Flink says it: INITIALIZING, CREATED, RUNNING, RESTARTING, FAILED, FINISHED, CANCELED, ...
        tasks_running, tasks_total: subtasks; a job is at work when both are equal and it is RUNNING.
        restarts: how often it was restarted since its JobManager came up.
        checkpoints_completed, checkpoints_failed: since its JobManager came up.
        newest_failure: first line of the latest root exception, empty when there was none.
    """

    job_id: str
    name: str
    state: str
    tasks_running: int
    tasks_total: int
    restarts: int
    checkpoints_completed: int
    checkpoints_failed: int
    newest_failure: str

    @property
    def at_work(self) -> bool:
        """Whether every subtask runs."""
        return self.state == "RUNNING" and self.tasks_total > 0 and self.tasks_running == self.tasks_total


class FlinkRest:
    """Client of one JobManager.

    Args:
        url: such as `http://127.0.0.1:8081`.
        timeout_s: of one request.
    """

    def __init__(self, url: str, timeout_s: float = 10.0) -> None:
        self.url = url
        self._http = httpx.Client(base_url=url, timeout=timeout_s, trust_env=False)

    def close(self) -> None:
        """Give the connections back."""
        self._http.close()

    def get(self, path: str) -> Any:
        """One GET, decoded.

        Raises:
            TransientFault: no answer, or one that is not 2xx.
        """
        return self._ask("GET", path)

    def _ask(self, method: str, path: str, body: dict[str, Any] | None = None) -> Any:
        try:
            answer = self._http.request(method, path, json=body)
            answer.raise_for_status()
            return answer.json() if answer.content else {}
        except (httpx.HTTPError, ValueError) as error:
            raise TransientFault(f"Flink at {self.url}{path}: {error}") from error

    def answers(self) -> bool:
        """Whether the JobManager serves its REST interface."""
        try:
            return "taskmanagers" in self.get("/overview")
        except TransientFault:
            return False

    def free_slots(self) -> int:
        """Slots that no job uses."""
        return int(self.get("/overview")["slots-available"])

    def jobs(self) -> list[dict[str, Any]]:
        """Flink's overview of all jobs: jid, name, state, tasks, start-time, ..."""
        return list(self.get("/jobs/overview")["jobs"])

    def script_failed(self) -> bool:
        """Whether an application's script ended with an error before it submitted a job."""
        return any(entry["status"] == "FAILED" for entry in self.get("/applications/overview")["applications"])

    def health(self, job_id: str) -> JobHealth:
        """State, tasks, restarts, checkpoints and newest failure of one job."""
        job = self.get(f"/jobs/{job_id}")
        checkpoints = self.get(f"/jobs/{job_id}/checkpoints").get("counts", {})
        failures = self.get(f"/jobs/{job_id}/exceptions").get("exceptionHistory", {}).get("entries", [])
        tasks = [vertex["tasks"] for vertex in job["vertices"]]
        return JobHealth(
            job_id=job_id,
            name=job["name"],
            state=job["state"],
            tasks_running=sum(task.get("RUNNING", 0) for task in tasks),
            tasks_total=sum(vertex["parallelism"] for vertex in job["vertices"]),
            restarts=self.metric(job_id, "numRestarts"),
            checkpoints_completed=checkpoints.get("completed", 0),
            checkpoints_failed=checkpoints.get("failed", 0),
            newest_failure=failures[0].get("stacktrace", "").splitlines()[0] if failures else "",
        )

    def metric(self, job_id: str, name: str) -> int:
        """One whole-number metric of a job; 0 while it is not reported."""
        values = self.get(f"/jobs/{job_id}/metrics?get={name}")
        return int(float(values[0]["value"])) if values else 0

    def cancel(self, job_id: str) -> None:
        """Cancel without a savepoint; the newest checkpoint stays."""
        self._ask("PATCH", f"/jobs/{job_id}?mode=cancel")

    def stop_with_savepoint(self, job_id: str, folder: str, deadline_s: float = 120.0) -> str:
        """Stop the job gently and return the savepoint's path.

        Args:
            job_id: of a running job.
            folder: where the savepoint goes.
            deadline_s: for the whole thing.

        Raises:
            StackFault: Flink could not make it, or the deadline passed.
        """
        asked = self._ask("POST", f"/jobs/{job_id}/stop", {"targetDirectory": folder, "drain": False})
        deadline = time.monotonic() + deadline_s
        while time.monotonic() < deadline:
            answer = self.get(f"/jobs/{job_id}/savepoints/{asked['request-id']}")
            if answer["status"]["id"] == "COMPLETED":
                operation = answer["operation"]
                if "location" in operation:
                    return str(operation["location"])
                raise StackFault(
                    f"no savepoint of job {job_id}: {operation.get('failure-cause', {}).get('stack-trace', operation)}"
                )
            time.sleep(0.1)
        raise StackFault(f"no savepoint of job {job_id} after {deadline_s:.0f} s; it runs on, ask again or cancel it")
