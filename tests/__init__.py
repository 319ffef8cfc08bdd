"""The tests: a folder for each part, mirroring the source; `rig` holds the fixtures."""
