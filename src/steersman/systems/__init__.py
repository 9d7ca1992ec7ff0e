"""The shipped systems: each a set of decision points, its world, and how it is judged."""
