"""A fleet: the nodes of a cluster, read, planned and tried."""
