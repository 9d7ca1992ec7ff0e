"""Personal data in texts: found and replaced before texts are stored."""
