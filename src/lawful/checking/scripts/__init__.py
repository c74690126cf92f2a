"""Counterexamples as standalone scripts."""
