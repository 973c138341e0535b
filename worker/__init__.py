"""The process that hosts workflows and activities, the dispatcher and the watchdog: `python -m worker`."""
