"""The commands of `bringup` that talk to the API, one module for each group."""
