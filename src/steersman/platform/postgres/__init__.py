"""PostgreSQL: servers, roles, connections and bulk encoding."""
