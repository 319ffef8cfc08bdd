"""Tests of the operator: the custom resource, its controller, their rights; on a real API server."""
