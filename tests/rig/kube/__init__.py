"""A real Kubernetes control plane for the tests: built once, started once per run, gone with it.

`binaries` finds or builds the programs, `control_plane` starts them, `keeper` shares one between the processes of a run,
`fixtures` is what tests ask for.
"""
