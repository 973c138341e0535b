"""The HTTP API: the cluster API and the fleet API over one core. Never talks to the workflow engine."""
