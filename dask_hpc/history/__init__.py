"""How long jobs of a name took before, and what they did: written when they end, asked for when they come."""
