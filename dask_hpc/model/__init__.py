"""The nouns: jobs, nodes, snapshots, plans, and the small models they are made of."""
