"""Those who use the system during a storm: create, cancel, retry, resume, abort, terminate; at random."""

import random
import threading
import uuid
from collections.abc import Callable

import httpx

from tests.system.storm.client import PatientClient
from tests.system.storm.recipes import RECIPES

_IDLE = ("Ready", "Failed", "Unavailable")
_PAUSE = (0.2, 1.5)  # seconds between two decisions


class People:
    """Clusters are named after their recipes. `operations` are those asked for, with their cluster.

    `on_end` is called just after the end of something that runs was asked for.
    """

    def __init__(
        self, client: PatientClient, chance: random.Random, on_end: Callable[[], None] = lambda: None
    ) -> None:
        self._on_end = on_end
        self._client = client
        self._chance = chance
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._decide, name="people")
        self._error: BaseException | None = None
        self.operations: dict[str, str] = {}

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Returns once nobody asks for anything any more; raises what went wrong with asking."""
        self._stop.set()
        self._thread.join()
        if self._error is not None:
            raise self._error

    def end_nodes(self, cluster: str, names: list[str]) -> None:
        """Terminates nodes of a cluster."""
        body = {"names": names, "requestId": self._request_id()}
        self._note(cluster, self._client.post(f"/clusters/{cluster}/nodes/terminate", body))

    def _decide(self) -> None:
        verbs = [self._create, self._cancel, self._make_room, self._terminate, self._retry, self._settle]
        try:
            while not self._stop.is_set():
                self._chance.choices(verbs, [6, 6, 4, 2, 3, 2])[0]()
                self._stop.wait(self._chance.uniform(*_PAUSE))
        except BaseException as error:
            self._error = error

    def _create(self) -> None:
        cluster = self._chance.choice(list(RECIPES))
        sets = [{"nodearray": "gpu", "count": self._chance.choice([1, 1, 2, 3])}]
        body = {"sets": sets, "requestId": self._request_id()}
        self._note(cluster, self._client.post(f"/clusters/{cluster}/nodes/create", body))

    def _cancel(self) -> None:
        operation_id = self._some(live=True)
        if operation_id is None:
            return
        body = {}
        if self._chance.random() < 0.4:
            names = [run["name"] for run in self._client.operation(operation_id)["progress"]]
            body = {"names": self._sample(names)} if names else {}
        for _ in range(self._chance.choice([1, 1, 2])):
            if self._client.post(f"/operations/{operation_id}/cancel", body).status_code == 202:
                self._on_end()

    def _retry(self) -> None:
        operation_id = self._some(live=False)
        if operation_id is not None:
            asked = {"operationId": operation_id, "requestId": self._request_id()}
            self._note(self.operations[operation_id], self._client.fleet("operations/retry", **asked))

    def _settle(self) -> None:
        operation_id = self._some(live=True)
        if operation_id is not None:
            verb = self._chance.choice(["resume", "resume", "abort"])
            self._client.fleet(f"operations/{verb}", operationId=operation_id)

    def _terminate(self) -> None:
        cluster = self._chance.choice(list(RECIPES))
        names = [node["Name"] for node in self._client.nodes(cluster)]
        if names:
            self.end_nodes(cluster, self._sample(names))
            self._on_end()

    def _make_room(self) -> None:
        """Machines are few: what has come to its end gives its machine up, so that new work begins."""
        for cluster in RECIPES:
            idle = [node["Name"] for node in self._client.nodes(cluster) if node["Status"] in _IDLE]
            if idle:
                self.end_nodes(cluster, self._sample(idle))

    def _some(self, *, live: bool) -> str | None:
        """An operation of late; with `live` most times one that has not ended."""
        newest = [one for one in self._client.operations() if one["id"] in self.operations][:20]
        open_ones = [one for one in newest if not one["endTime"] and one["action"] == "create"]
        chosen = open_ones if live and open_ones and self._chance.random() < 0.75 else newest
        return str(self._chance.choice(chosen)["id"]) if chosen else None

    def _sample(self, names: list[str]) -> list[str]:
        return self._chance.sample(sorted(names), self._chance.randint(1, len(names)))

    def _request_id(self) -> str:
        return str(uuid.UUID(int=self._chance.getrandbits(128)))

    def _note(self, cluster: str, answer: httpx.Response) -> None:
        """An answer that was lost comes as a conflict with the first operation's id."""
        body = answer.json()
        operation_id = body.get("operationId") or body.get("error", {}).get("operationId")
        if operation_id:
            self.operations[operation_id] = cluster
