"""The rehearsal of a release: every artefact is made, and tried in an empty place. Nothing is published."""
