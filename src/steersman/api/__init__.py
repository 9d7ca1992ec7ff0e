"""The HTTP service: routes, authentication, OpenAPI."""
