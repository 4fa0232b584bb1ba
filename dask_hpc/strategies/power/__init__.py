"""The power corridor's strategy: sizes, starts and levers by what they draw."""
