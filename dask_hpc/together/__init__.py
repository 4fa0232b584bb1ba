"""Tasks that share a node: as many of each kind at once as is fastest, and as fit into its memory."""
