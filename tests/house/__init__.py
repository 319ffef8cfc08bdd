"""Tests of the house rules: sizes, names, layers, packaging."""
