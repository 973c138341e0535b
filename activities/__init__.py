"""Everything with a side effect: SSH, machines, records. Workflows know only `activities.signatures`."""
