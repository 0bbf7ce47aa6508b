"""Bandits on partitions of the unit cube and on fixed arms: confidence bounds, elimination, tree search."""
