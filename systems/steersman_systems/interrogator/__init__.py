"""The interrogator (system 003): which question to ask next about an unknown embedding."""
