"""Plans in closed form: mathematics that people may also call directly."""
