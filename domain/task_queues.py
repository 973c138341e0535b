"""Names of Temporal task queues."""


def reaching(task_queue: str) -> str:
    """The queue beside a worker's own for what waits for machines to answer."""
    return f"{task_queue}-reach"
