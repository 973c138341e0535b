"""The activity that runs steps: follows them on their machine, stores their output, records their ends."""
