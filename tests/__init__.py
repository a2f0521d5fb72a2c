"""The tests of the projector; each folder is a layer."""
