"""What reports of the systems share: HTML pages, charts, MLflow."""
