"""The assistant (system 004): cache tier, route and tool for each request."""
