"""Arrays laid out anew on the nodes of a cluster: which pieces go where, and bringing them there."""
