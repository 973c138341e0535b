"""Workflow ids carry meaning: what runs, for what. Built here and nowhere else."""

from uuid import UUID


def operation_workflow_id(operation_id: UUID) -> str:
    """The workflow of an operation."""
    return f"operation/{operation_id}"


def batch_workflow_id(operation_id: UUID, batch: int) -> str:
    """The workflow of one batch of an operation."""
    return f"batch/{operation_id}/{batch}"


def run_workflow_id(kind: str, subject: object) -> str:
    """`node/<id>` or `machine/<id>`: the id is what keeps two runs of one subject apart."""
    return f"{kind}/{subject}"


def proof_workflow_id(run_id: UUID) -> str:
    """The workflow that ends what a run without workflow may have left."""
    return f"proof/{run_id}"
