"""Tests of what `bringup dev` and `bringup doctor` are made of."""
