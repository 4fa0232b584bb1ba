"""Analyses of a simulation divided between its nodes and others."""
