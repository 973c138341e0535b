"""`scripts/demo`: the main job from nothing, over a `bringup dev` of its own."""
