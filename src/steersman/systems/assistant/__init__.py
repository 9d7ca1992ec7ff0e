"""The assistant (system 004): which cache tier, which route, which tool, for each request."""
