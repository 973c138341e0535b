"""The fleet API: `POST /api/compute/<group>/<method>`."""
