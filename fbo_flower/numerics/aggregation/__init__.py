"""What several agents know, put together: barycenters, weights, agreement."""
