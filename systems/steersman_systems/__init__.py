"""The shipped systems: plug-ins of Steersman, each with its decision points, world and demo."""
