"""How many nodes there are at all."""
