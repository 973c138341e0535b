"""Every workflow there is; a test finds one that is missing here."""

from workflows.machine import MachineWorkflow
from workflows.node import NodeWorkflow
from workflows.operation import BatchWorkflow, OperationWorkflow
from workflows.proof import ProofWorkflow

WORKFLOWS: list[type] = [OperationWorkflow, BatchWorkflow, NodeWorkflow, MachineWorkflow, ProofWorkflow]
