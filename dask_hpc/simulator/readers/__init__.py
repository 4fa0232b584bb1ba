"""Workloads from files."""
